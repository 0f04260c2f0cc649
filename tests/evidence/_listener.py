"""A listener that runs an agent's tools, for figures that drive the engine without a call."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from voice_agent.agent import Agent
from voice_agent.engine.protocols import ToolCall
from voice_agent.engine.reply import Reply
from voice_agent.engine.stages import Pcm


class Listener:
    """Collects a reply. Set `reply` right after it was made."""

    def __init__(self, agent: Agent) -> None:
        self.agent, self.call = agent, agent.open_call("evidence", "zh")
        self.reply: Reply | None = None
        self.pcm: list[Pcm] = []
        self.failed: tuple[str, BaseException] | None = None
        self.calls: list[ToolCall] = []
        self.done = asyncio.Event()

    def on_text(self, text: str) -> None: ...

    def on_calls(self, calls: Sequence[ToolCall]) -> None:
        self.calls += calls
        self._running = asyncio.ensure_future(self._run(tuple(calls)))

    async def _run(self, calls: Sequence[ToolCall]) -> None:
        results = [(call, await self.agent.run_tool(self.call, call.name, call.arguments)) for call in calls]
        assert self.reply is not None
        self.reply.resume(results)

    def on_pcm(self, pcm: Pcm, last: bool) -> None:
        self.pcm.append(pcm)
        if last:
            self.done.set()

    def on_text_done(self) -> None: ...

    def on_failed(self, stage: str, error: BaseException) -> None:
        self.failed = (stage, error)
        self.done.set()
