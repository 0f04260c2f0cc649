"""The three protocols that a model implements to speak here: `Thinker`, `Talker` and `Codec`.

Data moves thinker → talker → codec. Each stage owns `slots` independent rows of state. Its methods are called
from that stage's one worker thread only, never from the event loop and never two at once, so an implementation
needs no lock. `step` advances the given rows by one unit (a token, a frame, a chunk) in one batch; rows join
and leave between two steps. What a row gives must not depend on which rows share its batch.

Lifetime of a row: `start(slot)` → any number of `step` → `free(slot)`. `free` is allowed at any moment after
`start`, takes effect at once and returns the row to the state it had before `start`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import torch

Language = Literal["zh", "en"]
StageName = Literal["thinker", "talker", "codec"]
# A recording of a caller: int16[T], mono, 16 kHz.
Recording: TypeAlias = "npt.NDArray[np.int16]"


@dataclass(frozen=True)
class ToolCall:
    """A call that the thinker wrote. `arguments` are JSON values, valid under the tool's schema."""

    call_id: str
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class Message:
    """One entry of the dialogue, as it was said or heard.

    user: `text` is the recognised utterance; `audio` the same as it was recorded, for a thinker that
    listens by itself. assistant: `text` is what was *heard* of the reply, and
    `tool_calls` what it called before it spoke. tool: `result` is the JSON value that `call_id` returned.
    """

    role: Literal["user", "assistant", "tool"]
    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    call_id: str = ""
    result: Any = None
    audio: Recording | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class ThinkRequest:
    """A turn for the thinker: the whole dialogue up to and with the user's last message.

    `tools` are JSON schemas by name (`{"description", "parameters"}`), `seed` makes sampling repeatable.
    `conversation` names the dialogue that the turns of a call make up: what a thinker keeps of one turn, it goes on
    from in the next turn of the same name. Empty: unnamed, and found by its content.
    `speak`: the reply is spoken, and goes before those that are only read.
    `say`: the reply, word for word, in place of one that the thinker writes; empty: it writes one. The last message is
    then an empty one of the user's.
    """

    messages: tuple[Message, ...]
    language: Language
    instructions: str = ""
    tools: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    seed: int = 0
    conversation: str = ""
    speak: bool = True
    say: str = ""


@dataclass(frozen=True)
class PromptStates:
    """What a talker that is conditioned on the prompt needs of it, and of the request.

    `rows`: [T, H], the thinker's states of the prompt's rows that the talker reads; `heard`: bool[T], the rows that
    are recorded audio. `seed` is the request's.
    """

    rows: torch.Tensor
    heard: torch.Tensor
    seed: int = 0


@dataclass(frozen=True)
class TextToken:
    """A reply token with the thinker's hidden state at its own position.

    `text` is its exact piece of the reply: joined, the pieces of a turn are the reply.
    `hidden`: float[H], detached. `prompt` comes with the first token of a reply, from a thinker whose talker asks
    for it.
    """

    id: int
    text: str
    hidden: torch.Tensor
    prompt: PromptStates | None = None


@dataclass(frozen=True)
class Thought:
    """What one thinker step gave a row. At most one field is set; none set: a token inside a tool call, or a part
    of a long prompt.

    `token`: a piece of the reply. `calls`: the tool calls are complete; the row rests until `resume`.
    `done`: the reply is complete.
    """

    token: TextToken | None = None
    calls: tuple[ToolCall, ...] = ()
    done: bool = False


@runtime_checkable
class Thinker(Protocol):
    """Writes tool calls and reply text, token by token, with a KV cache a row."""

    slots: int
    hidden_size: int

    def start(self, slot: int, request: ThinkRequest) -> None:
        """Prepare the row; the prompt is prefilled by its first `step`.

        Raises ValueError (expected and got) for a request that the model cannot read.
        """

    def step(self, slots: Sequence[int]) -> list[Thought]:
        """One token for each of these rows, in order."""

    def resume(self, slot: int, results: Sequence[tuple[ToolCall, Any]]) -> None:
        """Append the results of the row's tool calls (JSON values); its next `step` goes on from there."""

    def free(self, slot: int) -> None: ...


@runtime_checkable
class JudgesTurnEnd(Protocol):
    """What a thinker may do besides: say whether a caller has finished, from the words so far."""

    def turn_end(self, request: ThinkRequest) -> float:
        """The probability, 0 to 1, that the last message, a partial transcript, is a complete turn.

        Takes no slot and changes no row. Raises ValueError like `start`.
        """


@runtime_checkable
class KeepsDialogues(Protocol):
    """What a thinker may do besides: hold a dialogue between its turns, for the next one to go on from.

    It holds a bounded number of them, also if it is never told that one is over; then the one that has waited longest
    gives way.
    """

    @property
    def dialogues(self) -> int:
        """How many it holds, those of turns on their way included."""

    def forget(self, conversation: str) -> None:
        """The dialogue of this name (`ThinkRequest.conversation`) is over, and nothing is kept of it.

        That of a turn on its way is dropped by its `free`. Raises ValueError for an empty name.
        """


@dataclass(frozen=True)
class CodecFrame:
    """One frame of codec codes. `codes`: int64[Q]. `position`: index of the text token being spoken."""

    codes: torch.Tensor
    position: int


@dataclass(frozen=True)
class Prefilling:
    """What a talker step gave a row of which it read a part of a long prompt: no frame yet, and not the end."""


@runtime_checkable
class Talker(Protocol):
    """Turns text tokens with hidden states into codec frames, pulling text as it goes."""

    slots: int
    frame_rate: float

    def start(self, slot: int, language: Language, voice: str = "", speed: float = 1.0) -> None:
        """A new reply. `speed`: how much faster than usual it is spoken, one of the model's `speeds`."""

    def push(self, slot: int, tokens: Sequence[TextToken]) -> None:
        """More reply text for the row."""

    def finish(self, slot: int) -> None:
        """The row's text is complete: nothing more is pushed."""

    def ready(self, slot: int) -> bool:
        """Whether a step can make a frame (or end) now. False: it waits for text, and must not be stepped."""

    def step(self, slots: Sequence[int]) -> Sequence[CodecFrame | Prefilling | None]:
        """One frame for each of these rows, in order; None: the row has spoken all of its text."""

    def free(self, slot: int) -> None: ...


@runtime_checkable
class Codec(Protocol):
    """Decodes codec frames into PCM, causally, with streaming state a row.

    After n frames a row has given `n * samples_per_frame - latency_samples` samples (never below 0);
    `finish` gives the rest. Streaming output equals offline output, sample for sample.
    """

    slots: int
    sample_rate: int
    samples_per_frame: int
    latency_samples: int
    codebooks: int

    def start(self, slot: int) -> None: ...

    def step(self, slots: Sequence[int], codes: torch.Tensor) -> list[npt.NDArray[np.float32]]:
        """Decode `codes`: int64[B, N, Q] (N frames for each of B rows) to float32 PCM in [-1, 1], a chunk a row."""

    def finish(self, slot: int) -> npt.NDArray[np.float32]:
        """The samples held back for look-ahead; the row takes no more frames."""

    def free(self, slot: int) -> None: ...


class KnowsTools(Protocol):
    """What a model was made for; its parts may run elsewhere."""

    @property
    def name(self) -> str: ...

    @property
    def speeds(self) -> tuple[float, float]:
        """How slowly and how fast it can speak, as factors of its usual pace."""

    def check(self, tools: Mapping[str, Mapping[str, Any]]) -> None:
        """Raises ValueError, with a sentence that says which model takes them, if these tools are not known."""


@runtime_checkable
class OmniModel(KnowsTools, Protocol):
    """A thinker, a talker and a codec that belong together."""

    @property
    def thinker(self) -> Thinker: ...

    @property
    def talker(self) -> Talker: ...

    @property
    def codec(self) -> Codec: ...
