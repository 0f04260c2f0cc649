"""Play recordings into a real WebRTC call, a turn each, and report what was understood, answered, and how fast."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from voice_agent.client import CallClient, Event, voiced_spans
from voice_agent.wire import server as events

START_TIMEOUT_S = 90.0


@dataclass
class TurnReport:
    """One recording and its reply. `v2v_ms`: last voiced sample sent → first voiced sample received, at RTP arrival."""

    recording: str
    transcript: str = ""
    reply: str = ""
    tools: list[dict[str, Any]] = field(default_factory=list)
    latency: dict[str, float] = field(default_factory=dict)
    v2v_ms: float | None = None
    answered: bool = False
    failed: str = ""


@dataclass
class CallReport:
    """A whole call. `cart`: the state as the server showed it last; `placed`: the cart of the last placed order."""

    call_id: str
    connected_ms: float
    turns: list[TurnReport] = field(default_factory=list)
    cart: dict[str, Any] | None = None
    placed: dict[str, Any] | None = None

    def view(self) -> dict[str, Any]:
        return asdict(self)


@dataclass
class _Live:
    """What the events told so far."""

    turn: TurnReport
    report: CallReport
    done: asyncio.Event = field(default_factory=asyncio.Event)

    def take(self, event: dict[str, Any]) -> None:
        try:
            told = events.ADAPTER.validate_python(event)
        except ValidationError:
            return  # of a server that knows more events than this one
        turn = self.turn
        match told:
            case events.TranscriptionCompleted():
                turn.transcript = (turn.transcript + " " + told.transcript).strip()
            case events.OutputTranscriptDone():
                turn.reply = told.transcript
            case events.AgentToolCalled():
                turn.tools.append({"name": told.name, "arguments": told.arguments, "result": told.result})
                if told.name == "place" and isinstance(told.result, dict) and told.result.get("ok"):
                    self.report.placed = told.result.get("cart")
            case events.AgentCartUpdated():
                self.report.cart = told.cart
            case events.AgentLatency():
                turn.latency = {key: value for key, value in told.model_dump().items() if key.endswith("_ms")}
            case events.AgentStageFailed():
                turn.failed = told.stage
            case events.OutputStopped():
                turn.answered = not turn.failed
                self.done.set()


async def place_call(
    url: str,
    recordings: Sequence[Path],
    *,
    on_event: Callable[[Event], None] = lambda event: None,
    save: Path | None = None,
    save_aligned: Path | None = None,
    pause_s: float = 0.6,
    reply_timeout_s: float = 15.0,
    headers: dict[str, str] | None = None,
) -> CallReport:
    """Call `url` and play the recordings, each after the reply to the one before it and a pause.

    Raises CallRefused, ConnectionError, and FileNotFoundError before anything is placed.
    """
    for recording in recordings:
        if not recording.is_file():
            raise FileNotFoundError(f"{recording}: expected a sound file, found none")
    async with CallClient(url, headers) as call:
        report = CallReport(call.call_id, round(1000 * call.connected_s, 1))
        live = _Live(TurnReport(""), report)

        async def listen() -> None:
            async for event in call.events():
                live.take(event.data)
                on_event(event)

        async with asyncio.TaskGroup() as tasks:
            listening = tasks.create_task(listen())
            for recording in recordings:
                await asyncio.sleep(pause_s)
                live.turn, live.done = TurnReport(recording.name), asyncio.Event()
                report.turns.append(live.turn)
                sent, received = len(call.sent), len(call.received)
                await call.play(recording)
                try:
                    await asyncio.wait_for(live.done.wait(), reply_timeout_s)
                except TimeoutError:
                    live.turn.failed = live.turn.failed or "no reply"
                live.turn.v2v_ms = _voice_to_voice(call, sent, received)
            await asyncio.sleep(0.2)
            listening.cancel()
        if save is not None:
            call.save(save)
        if save_aligned is not None:
            call.save_aligned(save_aligned)
    return report


def _voice_to_voice(call: CallClient, sent: int, received: int) -> float | None:
    spoken = voiced_spans(call.sent[sent:], sent=True)
    heard = [span for span in voiced_spans(call.received[received:]) if spoken and span.start > spoken[-1].end]
    return round(1000 * (heard[0].start - spoken[-1].end), 1) if spoken and heard else None


@asynccontextmanager
async def own_server(*arguments: str) -> AsyncIterator[str]:
    """Start `voice-agent serve` on a free port in a process of its own; gives its address, and ends it by its pid.

    Raises ConnectionError with its last words if it does not come up.
    """
    command = [sys.executable, "-m", "voice_agent", "serve", "--port", "0", *arguments]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    )
    try:
        assert process.stdout is not None
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                line = (await process.stdout.readline()).decode()
        except TimeoutError:
            line = ""
        address = next((word for word in line.split() if word.startswith("http")), None)
        if address is None:
            raise ConnectionError(f"expected the server to print its address, got {line.strip()!r}")
        yield address
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(process.wait(), 30)
            except TimeoutError:
                process.kill()
                await process.wait()
