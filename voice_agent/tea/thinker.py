"""tea-omni's thinker: reads the dialogue, writes tool calls under a grammar, then the reply, token by token."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors import safe_open
from torch import Tensor

from voice_agent.engine.protocols import Language, Message, TextToken, ThinkRequest, Thought, ToolCall
from voice_agent.tea.decoder import Block, Decoder, DecoderConfig, rotations
from voice_agent.tea.endpoint import TurnEnd, lower_states, partial_tokens
from voice_agent.tea.grammar import FIELDS, SAY, CallGrammar, CallState
from voice_agent.tea.template import prompt_tokens, read, result_tokens
from voice_agent.tea.tokenizer import Vocabulary, piece

MAX_LENGTH = 896
MAX_REPLY = 160
END = "<end>"


def check(tools: Mapping[str, Mapping[str, Any]]) -> None:
    """Raises ValueError unless `tools` are ordering tools, by name and parameters, that tea-omni was trained on."""
    for name, schema in tools.items():
        known = {entry.rstrip("!") for entry in FIELDS.get(name, ())}
        given = set(schema.get("parameters", {}).get("properties", {}))
        if name not in FIELDS or given != known:
            raise ValueError(
                f"expected the ordering tools that tea-omni was trained on ({', '.join(FIELDS)}), "
                f"got {name}({', '.join(sorted(given))}); Qwen3-Omni takes any tools"
            )


@dataclass
class _Row:
    """A turn in a slot. `waiting` are the ids to be read by the next step, `length` the positions in its cache."""

    language: Language
    state: CallState
    waiting: list[int]
    key: str
    length: int = 0
    calls: tuple[ToolCall, ...] = ()
    replying: bool = False
    resting: bool = False
    spoken: list[str] = field(default_factory=list)
    script: list[tuple[str, str]] | None = None
    done: bool = False


def _key(request: ThinkRequest) -> str:
    """Names the turn within its call: the ids of its tool calls begin with it."""
    digest = hashlib.blake2s(digest_size=6)
    for message in request.messages:
        digest.update(f"{message.role}\0{message.text}\0".encode())
    return f"call_{digest.hexdigest()}"


def _greeted(language: Language) -> ThinkRequest:
    """The dialogue in which a given text is said: its pronunciation does not depend on any other."""
    return ThinkRequest((Message("user", "你好" if language == "zh" else "hello"),), language)


class TeaThinker:
    """A `Thinker`: one row a slot, each with its own KV cache; greedy, so that a dialogue always gives one reply.

    Keys and values: float32[layers, slots, heads, MAX_LENGTH, head_dim]. `TextToken.hidden` is the token's embedding,
    and the residual stream after the first `tapped` layers at its own position: float32[2 width].
    """

    def __init__(self, decoder: Decoder, vocabulary: Vocabulary, slots: int, head: TurnEnd | None = None) -> None:
        self.decoder = decoder.eval().requires_grad_(False)
        self.vocabulary = vocabulary
        self.slots = slots
        self._head = head
        config = decoder.config
        self.hidden_size = 2 * config.width
        self._config = config
        self._grammar = CallGrammar(vocabulary.menu)
        self._ids = vocabulary.ids
        self._reply_ids = {
            language: torch.tensor([i for i in ids if i != self._ids[END]])
            for language, ids in vocabulary.reply.items()
        }
        shape = (config.layers, slots, config.heads, MAX_LENGTH, config.head_dim)
        self._keys, self._values = torch.zeros(shape), torch.zeros(shape)
        self._before = torch.zeros(config.layers, slots, config.recent, config.width)
        self._cosine, self._sine = rotations(torch.arange(MAX_LENGTH), config)
        self._blocks = [block for block in decoder.blocks if isinstance(block, Block)]
        self._rows: list[_Row | None] = [None] * slots

    @classmethod
    def load(cls, path: Path, slots: int, endpoint: Path | None = None) -> TeaThinker:
        """Weights from a safetensors file, and the vocabulary in the JSON of the same name beside it.

        `endpoint`: the file of the end-of-turn head, which `turn_end` needs and nothing else does. Raises ValueError
        if that was fitted on another thinker.
        """
        vocabulary = Vocabulary.load(path.with_suffix(".json"))
        with safe_open(path, framework="pt") as file:
            stored: dict[str, str] = file.metadata()
            state = {key: file.get_tensor(key).float() for key in file.keys()}  # noqa: SIM118
        config = DecoderConfig(
            **{key: float(value) if key == "rotary_base" else int(value) for key, value in stored.items()}  # type: ignore[arg-type]
        )
        if config.vocabulary != len(vocabulary):
            raise ValueError(f"expected a vocabulary of {config.vocabulary} tokens, got {len(vocabulary)}")
        decoder = Decoder(config)
        decoder.load_state_dict(state)
        return cls(decoder, vocabulary, slots, TurnEnd.load(endpoint, decoder) if endpoint else None)

    @classmethod
    def untrained(cls, vocabulary: Vocabulary, slots: int, seed: int = 0) -> TeaThinker:
        """The same model with random weights."""
        generator = torch.Generator().manual_seed(seed)
        decoder = Decoder(DecoderConfig(len(vocabulary), vocabulary.outputs))
        for parameter in decoder.parameters():
            if parameter.dim() == 2:
                parameter.data.normal_(0, parameter.shape[1] ** -0.5, generator=generator)
        head = TurnEnd(decoder.config)
        head.requires_grad_(False)
        for parameter in head.parameters():
            if parameter.dim() == 2:
                parameter.normal_(0, parameter.shape[1] ** -0.5, generator=generator)
        return cls(decoder, vocabulary, slots, head)

    # ---- the protocol ----

    def start(self, slot: int, request: ThinkRequest) -> None:
        """Prepare the row. Raises ValueError for tools it does not know or a dialogue without a last user message."""
        if self._rows[slot] is not None:
            raise ValueError(f"expected a free slot, got {slot}, which is in use")
        check(request.tools)
        context = read(_greeted(request.language) if request.say else request)
        prompt = self.vocabulary.encode(prompt_tokens(context, self.vocabulary))
        state = self._grammar.start(context.grammar_lines(), request.tools)
        self._before[:, slot] = 0
        row = self._rows[slot] = _Row(request.language, state, prompt, _key(request))
        if request.say:
            row.script, row.replying = self._script(request.say, request.language, len(prompt)), True
            row.waiting = [*prompt, self._ids[SAY]]

    @torch.inference_mode()
    def step(self, slots: Sequence[int]) -> list[Thought]:
        """One token for each of these rows; a row that reads more than one (a prompt, results) is read by itself."""
        rows = [self._row(slot) for slot in slots]
        for slot, row in zip(slots, rows, strict=True):
            if row.resting:
                raise ValueError(f"expected the results of slot {slot}'s calls before its next step, got none")
        run = [i for i, row in enumerate(rows) if not row.done]
        out: dict[int, tuple[Tensor, Tensor]] = {}
        single = [i for i in run if len(rows[i].waiting) == 1]
        if single:
            logits, hidden = self._decode([slots[i] for i in single], [rows[i] for i in single])
            out |= {i: (logits[k], hidden[k]) for k, i in enumerate(single)}
        for i in run:
            if i not in out:
                out[i] = self._prefill(slots[i], rows[i])
        return [self._think(row, *out[i]) if i in out else Thought(done=True) for i, row in enumerate(rows)]

    def resume(self, slot: int, results: Sequence[tuple[ToolCall, Any]]) -> None:
        """Append the results of the row's calls. Raises ValueError if they are not the ones it waits for."""
        row = self._row(slot)
        expected = [call.call_id for call in row.calls]
        if not row.resting or [call.call_id for call, _ in results] != expected:
            raise ValueError(f"expected results of {expected}, got {[call.call_id for call, _ in results]}")
        row.waiting += self.vocabulary.encode(result_tokens(results, self.vocabulary.menu))
        row.resting, row.replying = False, True

    def free(self, slot: int) -> None:
        self._rows[slot] = None

    @torch.inference_mode()
    def turn_end(self, request: ThinkRequest) -> float:
        """`JudgesTurnEnd`: 0 for a last message without a word. Raises ValueError if no head was loaded."""
        if self._head is None:
            raise ValueError("expected a thinker that was loaded with its end-of-turn head, got one without")
        tokens = partial_tokens(read(request), self.vocabulary)
        if tokens[-1] == "<u>":
            return 0.0
        ids = torch.tensor([self.vocabulary.encode(tokens)])
        logits = self._head(lower_states(self.decoder, ids), torch.tensor([len(tokens) - 1]))
        return float(torch.sigmoid(logits[0]))

    # ---- for the talker's recipes ----

    @torch.inference_mode()
    def hidden_of_reply(self, language: Language, text: str) -> list[TextToken]:
        """The tokens of a given reply with their hidden states, as if it answered a greeting."""
        prompt = self.before_given(language)
        script = self._script(text, language, len(prompt))
        ids = self.vocabulary.encode([token for token, _ in script])
        _, hidden = self.decoder(torch.tensor([self.vocabulary.encode(prompt) + ids]))
        return [
            TextToken(token, text, state.clone())
            for token, (_, text), state in zip(ids, script, hidden[0, len(prompt) :], strict=True)
        ]

    def before_given(self, language: Language) -> list[str]:
        """The tokens that a given reply follows."""
        return [*prompt_tokens(read(_greeted(language)), self.vocabulary), SAY]

    # ---- inside ----

    def _row(self, slot: int) -> _Row:
        row = self._rows[slot]
        if row is None:
            raise ValueError(f"expected a started slot, got {slot}, which is free")
        return row

    def _script(self, text: str, language: Language, after: int) -> list[tuple[str, str]]:
        """Tokens and their texts. Raises ValueError for a text that is too long."""
        script, most = self.vocabulary.said_tokens(text, language), MAX_LENGTH - after - 2
        if len(script) > most:
            raise ValueError(f"expected a text of {most} words or characters at most to say, got {len(script)}")
        return script

    def _prefill(self, slot: int, row: _Row) -> tuple[Tensor, Tensor]:
        """Read the waiting ids of one row: logits and hidden state of the last."""
        count, start = len(row.waiting), row.length
        end = start + count
        x = embedding = self.decoder.embedding(torch.tensor([row.waiting]))
        cosine, sine = self._cosine[start:end], self._sine[start:end]
        mask = torch.ones(count, end, dtype=torch.bool).tril(start) if start else None
        lower = x
        for index, block in enumerate(self._blocks):
            before = self._before[index, slot : slot + 1]
            query, key, value, before[:] = block.project(x, before, cosine, sine)
            self._keys[index, slot, :, start:end], self._values[index, slot, :, start:end] = key[0], value[0]
            keys, values = self._keys[index, slot : slot + 1, :, :end], self._values[index, slot : slot + 1, :, :end]
            attended = F.scaled_dot_product_attention(query, keys, values, attn_mask=mask, is_causal=mask is None)
            x = block.finish(x, attended.transpose(1, 2).flatten(2))
            if index + 1 == self._config.tapped:
                lower = x
        row.length, row.waiting = end, []
        return self.decoder.head(self.decoder.norm(x[0, -1])), torch.cat([embedding[0, -1], lower[0, -1]])

    def _decode(self, slots: Sequence[int], rows: Sequence[_Row]) -> tuple[Tensor, Tensor]:
        """Read one id a row: logits[B, outputs] and hidden states[B, 2 width]."""
        batch = len(rows)
        places = torch.tensor([row.length for row in rows])
        at = torch.tensor(slots)
        longest = int(places.max()) + 1
        x = embedding = self.decoder.embedding(torch.tensor([[row.waiting[0]] for row in rows]))
        cosine, sine = self._cosine[places].view(batch, 1, 1, -1), self._sine[places].view(batch, 1, 1, -1)
        mask = (torch.arange(longest) <= places.unsqueeze(1)).view(batch, 1, 1, longest) if batch > 1 else None
        lower = x
        for index, block in enumerate(self._blocks):
            query, key, value, self._before[index, at] = block.project(x, self._before[index, at], cosine, sine)
            self._keys[index, at, :, places], self._values[index, at, :, places] = key[:, :, 0], value[:, :, 0]
            if batch == 1:
                keys = self._keys[index, slots[0] : slots[0] + 1, :, :longest]
                values = self._values[index, slots[0] : slots[0] + 1, :, :longest]
            else:
                keys, values = self._keys[index, at, :, :longest], self._values[index, at, :, :longest]
            attended = F.scaled_dot_product_attention(query, keys, values, attn_mask=mask)
            x = block.finish(x, attended.transpose(1, 2).flatten(2))
            if index + 1 == self._config.tapped:
                lower = x
        for row in rows:
            row.length, row.waiting = row.length + 1, []
        return self.decoder.head(self.decoder.norm(x[:, 0])), torch.cat([embedding[:, 0], lower[:, 0]], -1)

    def _think(self, row: _Row, logits: Tensor, hidden: Tensor) -> Thought:
        """Choose the row's next token; give the one that was just read, if it belongs to the reply."""
        if not row.replying:
            return self._call(row, logits)
        token = row.spoken[-1] if row.spoken else None
        before = row.spoken[-2] if len(row.spoken) > 1 else None
        place = len(row.spoken) - 1
        self._choose_reply(row, logits)
        if token is None:
            return Thought()
        text = row.script[place][1] if row.script else piece(token, before, row.language)
        return Thought(token=TextToken(self._ids.get(token, self._ids["<unk>"]), text, hidden.clone()))

    def _call(self, row: _Row, logits: Tensor) -> Thought:
        allowed = self._grammar.allowed(row.state)
        ids = self.vocabulary.encode(allowed)
        token = allowed[int(logits[ids].argmax())]
        self._grammar.advance(row.state, token)
        row.waiting = [self._ids[token]]
        if token == SAY:
            row.replying = True
        elif row.state.closed:
            row.calls = tuple(
                ToolCall(f"{row.key}_{i + 1}", name, arguments) for i, (name, arguments) in enumerate(row.state.done)
            )
            row.resting = True
            return Thought(calls=row.calls)
        return Thought()

    def _choose_reply(self, row: _Row, logits: Tensor) -> None:
        if row.script is not None:
            row.done = len(row.spoken) == len(row.script) or row.length >= MAX_LENGTH - 1
            if not row.done:
                token, _ = row.script[len(row.spoken)]
                row.spoken.append(token)
                row.waiting = [self._ids.get(token, self._ids["<unk>"])]
            return
        ids = self._reply_ids[row.language]
        best = int(ids[logits[ids].argmax()])
        full = len(row.spoken) >= MAX_REPLY or row.length >= MAX_LENGTH - 1
        if full or (row.spoken and bool(logits[self._ids[END]] > logits[best])):
            row.done = True
            return
        token = self.vocabulary.tokens[best]
        row.spoken.append(token)
        row.waiting = [best]
