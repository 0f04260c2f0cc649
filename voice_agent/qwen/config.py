"""What can be set about Qwen3-Omni. Imports nothing heavy, so that a configuration can be read without the model."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class QwenConfig(BaseModel):
    """listen: the model hears recordings itself; else it reads the recogniser's text. voice: empty: the model's own.

    max_length: tokens of a dialogue that the thinker holds. max_reply: tokens of a reply. max_frames: of its voice,
    12.5 a second. kept: dialogues held between turns; null: as many as slots. prefill: prompt positions that thinker
    and talker each read in one step. greedy: no sampling anywhere, for tests. device: as torch names it; empty: cuda if
    there is one. speech_device: of talker and codec; empty: the same. dtype: of thinker and talker; the codec computes
    in float32. compile: the steps of talker, predictor and codec by torch.compile. graphs: the same steps as CUDA
    graphs, recorded when the model is loaded.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    listen: bool = False
    voice: str = ""
    max_length: int = Field(4096, ge=256)
    max_reply: int = Field(512, ge=2)
    max_frames: int = Field(1500, ge=1)
    prefill: int = Field(512, ge=1)
    kept: int | None = Field(None, ge=0)
    greedy: bool = False
    device: str = ""
    speech_device: str = ""
    dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16"
    compile: bool = False
    graphs: bool = False
