"""A dialogue in the model's own chat template, as token ids, and the tool calls that the model writes.

What people said is encoded apart from the template around it, so that no words can pass for a control token. Replies
that the thinker itself wrote come back as the very ids that it wrote, cut where they stopped being heard: the keys
and values of a cache row then fit the next turn's prompt.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from transformers import PreTrainedTokenizerFast
from transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe import _get_feat_extract_output_lengths

from voice_agent.engine.protocols import Message, ThinkRequest, ToolCall

CALL_OPEN, CALL_CLOSE = "<tool_call>", "</tool_call>"
# Stands for a message's content while the template is filled in; from Unicode's private use area.
_PLACEHOLDER = "\ue000{}\ue001"
_PLACEHOLDERS = re.compile("\ue000([0-9]+)\ue001")
# A call that cannot be read is named so; the agent answers that there is no such tool, and the model tries again.
UNREADABLE = "unreadable"

SAMPLE_RATE = 16_000
MEL_HOP = 160


@dataclass
class Written:
    """What the thinker wrote after one generation prompt. `pieces`: the text of each id, empty inside tool calls."""

    ids: list[int] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)
    call_ids: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def until(self, text: str) -> Written | None:
        """The part whose text is `text`, if it ends between two tokens."""
        said = ""
        for count, piece in enumerate(self.pieces):
            if said == text:
                return Written(self.ids[:count], self.pieces[:count])
            said += piece
        return Written(self.ids, self.pieces) if said == text else None


@dataclass(frozen=True)
class Prompt:
    """A prompt as ids. `keys` tell what stands at each position: the id, or for a recording's frames a negative
    number of their own. `audio`: the recordings (int16 at 16 kHz) with the position of their first frame.
    """

    ids: list[int]
    keys: list[int]
    audio: list[tuple[int, npt.NDArray[np.int16]]]


def matched(messages: Sequence[Message], written: Sequence[Written | None]) -> list[Written | None]:
    """For each assistant message what was written for it, cut to what the message holds; None: written elsewhere.

    After tool calls the message holds the whole turn's text, that before the calls too.
    """
    found: list[Written | None] = []
    before = ""
    for index, message in enumerate(m for m in messages if m.role == "assistant"):
        one = written[index] if index < len(written) else None
        if one is None:
            found.append(None)
        elif message.tool_calls:
            same = one.call_ids == tuple(call.call_id for call in message.tool_calls)
            found.append(one if same else None)
            before += one.text
        else:
            rest = message.text.removeprefix(before) if message.text.startswith(before) else None
            found.append(None if rest is None or one.call_ids else one.until(rest))
            before = ""
    return found


class Template:
    """Fills in the chat template.

    Raises ValueError if the tokenizer lacks what the template or the model stands on.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerFast, *, audio_token_id: int, im_end_token_id: int, n_window: int = 50
    ) -> None:
        self.tokenizer = tokenizer
        self.audio_token_id, self.im_end_token_id, self._n_window = audio_token_id, im_end_token_id, n_window
        if tokenizer.chat_template is None:
            raise ValueError("expected a tokenizer with a chat template, got none")
        self._controls = re.compile("|".join(map(re.escape, tokenizer.get_added_vocab())))
        vocabulary = tokenizer.get_vocab()
        self.call_open, self.call_close = vocabulary.get(CALL_OPEN), vocabulary.get(CALL_CLOSE)
        self.takes_tools = self.call_open is not None and self.call_close is not None

    @classmethod
    def load(cls, folder: Path, **ids: int) -> Template:
        """The tokenizer of a model's folder, with the template beside it. Raises ValueError."""
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(folder)
        beside = folder / "chat_template.json"
        if tokenizer.chat_template is None and beside.is_file():
            tokenizer.chat_template = json.loads(beside.read_text("utf-8"))["chat_template"]
        return cls(tokenizer, **ids)

    def render(self, request: ThinkRequest, written: Sequence[Written | None] = (), *, listen: bool = False) -> Prompt:
        """The ids of a request up to where the model goes on. `written`: as `matched` gives it.

        Raises ValueError if there is nothing to answer, or the template drops a message.
        """
        if not any(message.role == "user" for message in request.messages):
            raise ValueError("expected a user message, got none")
        ids_of = iter(written)
        contents: list[list[int]] = []
        recordings: list[npt.NDArray[np.int16]] = []
        chat: list[dict[str, Any]] = []
        if request.instructions:
            chat.append({"role": "system", "content": request.instructions})
        for message in request.messages:
            own = next(ids_of, None) if message.role == "assistant" else None
            if listen and message.audio is not None:
                recordings.append(message.audio)
                chat.append({"role": "user", "content": [{"type": "audio", "audio": ""}]})
            elif message.tool_calls and own is None:
                calls = [{"name": call.name, "arguments": dict(call.arguments)} for call in message.tool_calls]
                functions = [{"type": "function", "function": call} for call in calls]
                chat.append({"role": "assistant", "content": "", "tool_calls": functions})
            else:
                text = json.dumps(message.result, ensure_ascii=False) if message.role == "tool" else message.text
                chat.append({"role": message.role, "content": _PLACEHOLDER.format(len(contents))})
                contents.append(own.ids if own is not None else self.encode_words(text.strip()))
        tools = [{"type": "function", "function": {"name": name, **schema}} for name, schema in request.tools.items()]
        text = self.tokenizer.apply_chat_template(chat, tools=tools or None, add_generation_prompt=True, tokenize=False)
        return self._assemble(text, contents, recordings)

    def piece_decoder(self) -> Any:
        """Gives the exact text of one id after another: `step(tokenizer, id)`, None while a character is incomplete."""
        from tokenizers.decoders import DecodeStream

        return DecodeStream(skip_special_tokens=True)

    def read_call(self, ids: Sequence[int], call_id: str) -> ToolCall:
        """The call that these ids, between the call's marks, spell."""
        text = self.tokenizer.decode(list(ids), skip_special_tokens=True)
        try:
            value = json.loads(text)
            name, arguments = value["name"], value.get("arguments", {})
        except (ValueError, TypeError, KeyError):
            return ToolCall(call_id, UNREADABLE, {})
        if not isinstance(name, str) or not isinstance(arguments, Mapping):
            return ToolCall(call_id, UNREADABLE, {})
        return ToolCall(call_id, name, arguments)

    def encode_words(self, text: str) -> list[int]:
        """What looks like a control token is cut in two, so that it is spelled and does not count as one."""
        cuts = [0, *(found.start() + 1 for found in self._controls.finditer(text)), len(text)]
        parts = [text[start:end] for start, end in itertools.pairwise(cuts)]
        return [token for part in parts for token in self.tokenizer.encode(part, add_special_tokens=False)]

    # ---- inside ----

    def _assemble(
        self, text: str, contents: Sequence[list[int]], recordings: Sequence[npt.NDArray[np.int16]]
    ) -> Prompt:
        parts = _PLACEHOLDERS.split(text)
        places = [int(number) for number in parts[1::2]]
        if places != list(range(len(contents))):
            raise ValueError(f"expected the chat template to keep {len(contents)} messages in order, got {places}")
        flat: list[int] = []
        for index, part in enumerate(parts):
            flat += contents[int(part)] if index % 2 else self.tokenizer.encode(part, add_special_tokens=False)
        if flat.count(self.audio_token_id) != len(recordings):
            raise ValueError(
                f"expected a place for each of {len(recordings)} recordings in the chat template, "
                f"got {flat.count(self.audio_token_id)}"
            )
        return self._with_audio(flat, recordings)

    def _with_audio(self, flat: Sequence[int], recordings: Sequence[npt.NDArray[np.int16]]) -> Prompt:
        waiting = iter(recordings)
        ids: list[int] = []
        keys: list[int] = []
        audio: list[tuple[int, npt.NDArray[np.int16]]] = []
        for token in flat:
            if token != self.audio_token_id:
                ids.append(token)
                keys.append(token)
                continue
            pcm = next(waiting)
            audio.append((len(ids), pcm))
            frames = self.audio_frames(pcm)
            if not frames:
                raise ValueError(f"expected a recording of at least {MEL_HOP} samples, got {len(pcm)}")
            name = int.from_bytes(hashlib.blake2s(pcm.tobytes(), digest_size=7).digest())
            ids += [token] * frames
            keys += [-((name << 16) + i + 1) for i in range(frames)]
        return Prompt(ids, keys, audio)

    def audio_frames(self, pcm: npt.NDArray[np.int16]) -> int:
        """How many positions a recording takes."""
        return int(_get_feat_extract_output_lengths(len(pcm) // MEL_HOP, self._n_window))
