"""Qwen3-Omni's thinker: reads the dialogue, writes tool calls and the reply, one token a step and row.

A cache row outlives its turn. The next turn of the same conversation begins on the row that its prompt continues, cut
back to the last position that both share; only what was said since is read. A prompt that another row shares in part,
because it has the same instructions or is still answering the caller's last words, takes a copy of that part.

A row serves one turn at a time. `kept` rows more than there are slots wait for their next turn; the one that has
waited longest is overwritten when a turn finds no row of its own. A dialogue that is over is forgotten: its row is
empty and the first to be taken.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import WhisperFeatureExtractor
from transformers.models.qwen3_omni_moe.modeling_qwen3_omni_moe import Qwen3OmniMoeThinkerForConditionalGeneration

from voice_agent.engine.protocols import Message, PromptStates, TextToken, ThinkRequest, Thought, ToolCall
from voice_agent.qwen.cache import SlotCache
from voice_agent.qwen.prompt import SAMPLE_RATE, Prompt, Template, Written, matched
from voice_agent.qwen.sampling import Chooser, Sampling
from voice_agent.qwen.talker import HEAD_ROWS

log = logging.getLogger(__name__)

MAX_ROUNDS = 8  # of tool calls in one turn; a model that goes on calling is cut off


@dataclass
class _Turn:
    """A request on its way. `waiting`: ids to be read; `features`: audio-tower states of the recordings in them."""

    request: ThinkRequest
    prompt: Prompt
    generator: torch.Generator
    key: str
    waiting: list[int] = field(default_factory=list)
    features: Tensor | None = None
    written: Written = field(default_factory=Written)
    decoder: Any = None
    opened: int | None = None  # where in `written` the call that is being spelled begins
    calls: list[ToolCall] = field(default_factory=list)
    rounds: int = 0
    tokens: int = 0
    introduced: bool = False
    resting: bool = False
    done: bool = False
    script: list[int] | None = None  # what is said in place of what the model would choose


@dataclass
class _Row:
    """What a cache row holds. `keys`: as in `Prompt`, a position each; `written`: for each assistant message."""

    number: int
    keys: list[int] = field(default_factory=list)
    written: list[Written | None] = field(default_factory=list)
    heard: list[tuple[int, Tensor]] = field(default_factory=list)  # states of recorded frames, with their position
    conversation: str = ""
    turn: _Turn | None = None
    used: int = 0  # when it last began or ended a turn, by the thinker's count of these
    over: bool = False  # nothing of it is to be kept after its turn

    def clear(self) -> None:
        """Hold nothing, and be the first to be taken."""
        self.keys, self.written, self.heard = [], [], []
        self.conversation, self.used, self.over = "", 0, False


class QwenThinker:
    """A `Thinker`. `TextToken.hidden` is the token's embedding, which is all that the talker reads of it.

    listen: the model hears recordings itself, by its audio tower; otherwise it reads recognised text.
    accept_layer: whose output the talker reads of recorded audio. kept: rows held for calls that are not speaking.
    max_reply: tokens a reply, its end included. prefill: prompt positions read in one step, of all rows together, the
    oldest first.
    """

    def __init__(
        self,
        model: Qwen3OmniMoeThinkerForConditionalGeneration,
        template: Template,
        slots: int,
        *,
        user_token_id: int,
        im_start_token_id: int,
        accept_layer: int,
        extractor: WhisperFeatureExtractor | None = None,
        listen: bool = False,
        sampling: Sampling = Sampling(greedy=True),  # noqa: B008
        kept: int | None = None,
        max_reply: int = 512,
        max_length: int = 4096,
        prefill: int = 512,
    ) -> None:
        if listen and extractor is None:
            raise ValueError("expected a feature extractor for a thinker that listens, got none")
        self.model = model.eval().requires_grad_(False)
        self.template, self.slots, self.listen = template, slots, listen
        self.max_reply, self.max_length, self.prefill = max_reply, max_length, prefill
        text = model.config.text_config
        self.hidden_size = int(text.hidden_size)
        self._user, self._im_start, self._accept = user_token_id, im_start_token_id, accept_layer
        self._extractor = extractor
        weight = model.lm_head.weight
        self._device = weight.device
        self._chooser = Chooser(sampling, int(text.vocab_size), device=self._device)
        rows = slots + (slots if kept is None else kept)
        self._cache = SlotCache(
            layers=text.num_hidden_layers,
            rows=rows,
            heads=text.num_key_value_heads,
            length=max_length,
            head_dim=getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads,
            dtype=weight.dtype,
            device=self._device,
        )
        self._rows = [_Row(number) for number in range(rows)]
        self._by_slot: list[_Row | None] = [None] * slots
        self._clock = itertools.count(1)
        self._calls = itertools.count(1)

    # ---- the protocol ----

    @torch.inference_mode()
    def start(self, slot: int, request: ThinkRequest) -> None:
        """Raises ValueError for a slot in use, a request without a user message, or a prompt too long."""
        if self._by_slot[slot] is not None:
            raise ValueError(f"expected a free slot, got {slot}, which is in use")
        row, prompt = self._choose_row(request)
        generator = torch.Generator(self._device).manual_seed(request.seed)
        turn = _Turn(request, prompt, generator, f"call_{next(self._calls)}")
        if request.say:
            turn.script = [*self.template.encode_words(request.say), self.template.im_end_token_id]
        self._place(row, turn, prompt)
        row.turn, row.used, row.conversation = turn, next(self._clock), request.conversation
        self._by_slot[slot] = row

    @torch.inference_mode()
    def step(self, slots: Sequence[int]) -> list[Thought]:
        """One token each; a row that reads a prompt reads a part of it, by itself, and gives nothing until its end."""
        rows = [self._row(slot) for slot in slots]
        turns = [self._turn(row) for row in rows]
        for slot, turn in zip(slots, turns, strict=True):
            if turn.resting:
                raise ValueError(f"expected the results of slot {slot}'s calls before its next step, got none")
        logits: dict[int, Tensor] = {}
        single = [i for i, turn in enumerate(turns) if not turn.done and len(turn.waiting) == 1]
        if single:
            scores = self._decode([rows[i] for i in single], [turns[i] for i in single])
            logits |= dict(zip(single, scores, strict=True))
        room = self.prefill
        reading = [i for i, turn in enumerate(turns) if not turn.done and i not in logits]
        for i in sorted(reading, key=lambda i: rows[i].used):
            count = min(room, len(turns[i].waiting))
            room -= count
            last = self._prefill(rows[i], turns[i], count) if count else None
            if last is not None:
                logits[i] = last
        chosen = self._choose([turns[i] for i in logits], list(logits.values())) if logits else []
        tokens = dict(zip(logits, chosen, strict=True))
        return [self._think(row, turn, tokens.get(i)) for i, (row, turn) in enumerate(zip(rows, turns, strict=True))]

    @torch.inference_mode()
    def resume(self, slot: int, results: Sequence[tuple[ToolCall, Any]]) -> None:
        """Append the results. Raises ValueError if they are not those of the calls that the row waits for."""
        row = self._row(slot)
        turn = self._turn(row)
        expected = [call.call_id for call in turn.calls]
        if not turn.resting or [call.call_id for call, _ in results] != expected:
            raise ValueError(f"expected results of {expected}, got {[call.call_id for call, _ in results]}")
        turn.request = replace(
            turn.request,
            messages=(
                *turn.request.messages,
                Message("assistant", tool_calls=tuple(turn.calls)),
                *(Message("tool", call_id=call.call_id, result=result) for call, result in results),
            ),
        )
        row.written.append(turn.written)
        turn.written, turn.calls, turn.decoder, turn.resting = Written(), [], None, False
        turn.rounds += 1
        prompt = self.template.render(turn.request, row.written, listen=self.listen)
        if turn.rounds > MAX_ROUNDS or len(prompt.ids) >= self.max_length:
            log.warning("a turn ends after %d rounds of tool calls and %d tokens", turn.rounds, len(prompt.ids))
            turn.done = True
            return
        self._place(row, turn, prompt)

    def free(self, slot: int) -> None:
        """The slot's row is kept with what it holds, for the call's next turn."""
        row = self._by_slot[slot]
        if row is None or row.turn is None:
            return
        row.written.append(row.turn.written)
        row.turn, row.used, self._by_slot[slot] = None, next(self._clock), None
        if row.over:
            row.clear()

    def forget(self, conversation: str) -> None:
        """`KeepsDialogues`: the call's rows are empty; that of a turn on its way is when its slot is freed."""
        if not conversation:
            raise ValueError("expected the name of a conversation, got ''")
        for row in self._rows:
            if row.conversation == conversation:
                row.over = True
                if row.turn is None:
                    row.clear()

    @property
    def dialogues(self) -> int:
        """`KeepsDialogues`: the rows that hold something, or are about to."""
        return sum(bool(row.keys) or row.turn is not None for row in self._rows)

    @property
    def rows_in_use(self) -> int:
        return sum(row.turn is not None for row in self._rows)

    # ---- rows ----

    def _row(self, slot: int) -> _Row:
        row = self._by_slot[slot]
        if row is None:
            raise ValueError(f"expected a started slot, got {slot}, which is free")
        return row

    def _turn(self, row: _Row) -> _Turn:
        assert row.turn is not None
        return row.turn

    def _choose_row(self, request: ThinkRequest) -> tuple[_Row, Prompt]:
        """A free row that holds as much of the request's prompt as is held anywhere, and the prompt.

        Raises ValueError for a prompt that does not fit.
        """
        prompt = self.template.render(request, listen=self.listen)
        source, shared, written, continues = None, 0, [], False
        for row in self._rows:
            if row.conversation != request.conversation:
                continue
            own = matched(request.messages, row.written)
            known = any(one is not None for one in own)
            candidate = self.template.render(request, own, listen=self.listen) if known else prompt
            length = _shared(candidate.keys, row.keys)
            if (length, known) > (shared, continues):
                source, shared, written, continues, prompt = row, length, own, known, candidate
        if len(prompt.ids) >= self.max_length:
            raise ValueError(f"expected a dialogue of less than {self.max_length} tokens, got {len(prompt.ids)}")
        target = self._free_row(request, source if continues else None)
        for row in self._rows:
            length = _shared(prompt.keys, row.keys)
            if length > shared:
                source, shared = row, length
        held = _shared(prompt.keys, target.keys)
        if source is not None and shared > held:
            self._cache.copy(source.number, target.number, held, shared)
            target.keys = source.keys[:shared]
            target.heard = [(at, states) for at, states in source.heard if at + len(states) <= shared]
        target.written = written if continues else []
        return target, prompt

    def _free_row(self, request: ThinkRequest, continued: _Row | None) -> _Row:
        """The row that the request continues, or one of its conversation, or the one that has waited longest."""
        free = [row for row in self._rows if row.turn is None]
        if continued is not None and continued in free:
            return continued
        named = [row for row in free if request.conversation and row.conversation == request.conversation]
        return min(named or free, key=lambda row: row.used)

    def _place(self, row: _Row, turn: _Turn, prompt: Prompt) -> None:
        """Cut the row to what it shares with the prompt; the rest waits to be read."""
        shared = min(_shared(prompt.keys, row.keys), len(prompt.ids) - 1)
        for at, pcm in prompt.audio:  # a recording is heard as a whole
            if at < shared < at + self.template.audio_frames(pcm):
                shared = at
        del row.keys[shared:]
        row.heard = [(at, states) for at, states in row.heard if at + len(states) <= shared]
        turn.prompt, turn.waiting = prompt, prompt.ids[shared:]
        recordings = [pcm for at, pcm in prompt.audio if at >= shared]
        turn.features = torch.cat([self._hear(pcm) for pcm in recordings]) if recordings else None

    # ---- forward ----

    def _hear(self, pcm: np.ndarray[Any, np.dtype[np.int16]]) -> Tensor:
        """int16[T] at 16 kHz → the audio tower's states: [frames, H]."""
        assert self._extractor is not None
        found = self._extractor(
            pcm.astype(np.float32) / 32768,
            sampling_rate=SAMPLE_RATE,
            padding=True,
            truncation=False,
            return_attention_mask=True,
            return_tensors="pt",
        )
        states: Tensor = self.model.get_audio_features(
            found["input_features"].to(self._device, self.model.lm_head.weight.dtype),
            found["attention_mask"].to(self._device),
        ).last_hidden_state
        expected = self.template.audio_frames(pcm)
        if len(states) != expected:
            raise ValueError(f"expected {expected} audio frames for {len(pcm)} samples, got {len(states)}")
        return states

    def _embed(self, ids: Sequence[int]) -> Tensor:
        embedded: Tensor = self.model.get_input_embeddings()(torch.tensor(ids, device=self._device))
        return embedded

    def _forward(self, rows: Sequence[_Row], x: Tensor, *, states: bool = False) -> Any:
        step = self._cache.step([row.number for row in rows], [len(row.keys) for row in rows], x.shape[1])
        return self.model.model.language_model(
            inputs_embeds=x,
            position_ids=step.positions.expand(3, -1, -1),
            attention_mask=step.mask,
            cache=step,
            use_cache=True,
            output_hidden_states=states,
        )

    def _decode(self, rows: Sequence[_Row], turns: Sequence[_Turn]) -> Tensor:
        """Read the one waiting id of each row: logits[B, V]."""
        out = self._forward(rows, self._embed([turn.waiting[0] for turn in turns]).unsqueeze(1))
        for row, turn in zip(rows, turns, strict=True):
            row.keys += turn.waiting
            turn.waiting = []
        logits: Tensor = self.model.lm_head(out.last_hidden_state[:, -1])
        return logits

    def _prefill(self, row: _Row, turn: _Turn, most: int) -> Tensor | None:
        """Read the next part of the prompt, up to `most` positions: logits[V] after its end, None before."""
        ids, turn.waiting = turn.waiting[:most], turn.waiting[most:]
        x = self._embed(ids)
        heard = torch.tensor([token == self.template.audio_token_id for token in ids], device=self._device)
        count = int(heard.sum())
        if count:
            assert turn.features is not None
            x[heard] = turn.features[:count].to(x.dtype)
            turn.features = turn.features[count:]
        out = self._forward([row], x.unsqueeze(0), states=count > 0)
        start = len(row.keys)
        if count:
            states = out.hidden_states[self._accept][0]
            row.heard += [(start + i, states[i : i + 1].clone()) for i in heard.nonzero()[:, 0].tolist()]
        row.keys += turn.prompt.keys[start : start + len(ids)]
        if turn.waiting:
            return None
        logits: Tensor = self.model.lm_head(out.last_hidden_state[0, -1])
        return logits

    # ---- tokens ----

    def _choose(self, turns: Sequence[_Turn], logits: Sequence[Tensor]) -> list[int]:
        """The next token of each of these turns."""
        noise = self._chooser.noise([turn.generator for turn in turns], len(turns))
        chosen: list[int] = self._chooser.choose(torch.stack(list(logits)), noise).tolist()
        return [turn.script.pop(0) if turn.script else token for turn, token in zip(turns, chosen, strict=True)]

    def _think(self, row: _Row, turn: _Turn, token: int | None) -> Thought:
        """What the row's next token means."""
        if turn.done:
            return Thought(done=True)
        if token is None:
            return Thought()
        turn.tokens += 1
        full = turn.tokens >= self.max_reply or len(row.keys) + 1 >= self.max_length
        if full or token == self.template.im_end_token_id:
            return self._end(turn)
        turn.waiting = [token]
        turn.written.ids.append(token)
        if token == self.template.call_open:
            turn.opened = len(turn.written.ids)
        elif token == self.template.call_close and turn.opened is not None:
            spelled = turn.written.ids[turn.opened : -1]
            turn.calls.append(self.template.read_call(spelled, f"{turn.key}_{turn.rounds}_{len(turn.calls)}"))
            turn.opened = None
        elif turn.opened is None and not turn.calls:
            return Thought(token=self._say(row, turn, token))
        turn.written.pieces.append("")
        return Thought()

    def _say(self, row: _Row, turn: _Turn, token: int) -> TextToken:
        turn.decoder = turn.decoder or self.template.piece_decoder()
        text = turn.decoder.step(self.template.tokenizer.backend_tokenizer, token) or ""
        turn.written.pieces.append(text)
        states = None if turn.introduced else self._states(row, turn)
        turn.introduced = True
        return TextToken(token, text, self._embed([token])[0], states)

    def _end(self, turn: _Turn) -> Thought:
        """The model ended, or was cut off. A call that it began and did not finish cannot be read."""
        if turn.opened is not None:
            turn.calls.append(self.template.read_call((), f"{turn.key}_{turn.rounds}_{len(turn.calls)}"))
            turn.opened = None
        if not turn.calls:
            turn.done = True
            return Thought(done=True)
        turn.resting = True
        turn.written.call_ids = tuple(call.call_id for call in turn.calls)
        return Thought(calls=tuple(turn.calls))

    def _states(self, row: _Row, turn: _Turn) -> PromptStates:
        """The rows of every user segment, and the last ones, which open the reply."""
        ids = turn.prompt.ids
        picked: list[int] = []
        user = False
        for at, token in enumerate(ids):
            if token == self._im_start:
                user = at + 1 < len(ids) and ids[at + 1] == self._user
            if user:
                picked.append(at)
        picked += range(len(ids) - HEAD_ROWS, len(ids))
        states = self._embed([ids[at] for at in picked])
        heard = torch.tensor([ids[at] == self.template.audio_token_id for at in picked], device=self._device)
        if row.heard:
            states[heard] = torch.cat([state for _, state in row.heard]).to(states.dtype)
        return PromptStates(states, heard, turn.request.seed)


def _shared(one: Sequence[int], other: Sequence[int]) -> int:
    """How many leading entries are the same."""
    for index, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return index
    return min(len(one), len(other))
