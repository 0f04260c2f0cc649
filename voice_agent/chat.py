"""The same agent by text: thinker and tools, no audio."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from typing import Any

from voice_agent.agent import Agent, Call, view_of
from voice_agent.conversation import Conversation
from voice_agent.engine.protocols import Language, Message, ThinkRequest, Thought, ToolCall
from voice_agent.engine.stages import ThinkerStage


class Chat:
    """A text call. `say` gives the reply; `call.state` is what the tools made of it."""

    def __init__(self, agent: Agent, thinker: ThinkerStage, language: Language) -> None:
        self.agent, self.thinker, self.language = agent, thinker, language
        self.call: Call[Any] = agent.open_call(uuid.uuid4().hex[:8], language)
        self.conversation = Conversation()
        self.tools: list[tuple[ToolCall, Any]] = []

    @property
    def state(self) -> Any:
        """The state as JSON, or None if it has no view."""
        shown = view_of(self.call)
        return shown[1] if shown else None

    async def say(self, text: str) -> str:
        """The agent's reply to `text`. Raises RuntimeError when the thinker fails."""
        thoughts: asyncio.Queue[Thought | BaseException] = asyncio.Queue(maxsize=0)
        loop = asyncio.get_running_loop()

        def give(thing: Thought | BaseException) -> None:
            loop.call_soon_threadsafe(thoughts.put_nowait, thing)

        request = ThinkRequest(
            (*self.conversation.messages, Message("user", text)),
            self.language,
            self.agent.instructions,
            self.agent.schemas(),
            speak=False,
        )
        rid = next(self.thinker.ids)
        self.conversation.add(Message("user", text))
        self.thinker.submit(rid, request, give, lambda stage, error: give(error))
        pieces: list[str] = []
        while True:
            thought = await thoughts.get()
            if isinstance(thought, BaseException):
                raise RuntimeError(f"the thinker failed: {thought}") from thought
            if thought.token is not None:
                pieces.append(thought.token.text)
            if thought.calls:
                results = await self._run(thought.calls)
                self.conversation.add_tools(results)
                self.thinker.resume(rid, results)
            if thought.done:
                break
        reply = "".join(pieces)
        self.conversation.add(Message("assistant", reply))
        return reply

    async def _run(self, calls: Sequence[ToolCall]) -> list[tuple[ToolCall, Any]]:
        results = [(call, await self.agent.run_tool(self.call, call.name, call.arguments)) for call in calls]
        self.tools += results
        return results
