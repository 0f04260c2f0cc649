"""The calls of a server: slots, ownership of their tasks, and the way they all end."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter, deque
from types import TracebackType
from typing import Any, Self

from starlette.websockets import WebSocket

from voice_agent.media.peer import Call, MakeSession, PeerConfig
from voice_agent.media.socket import PcmSocket, RealtimeSocket, SocketCall, SocketConfig

# Calls that ended lately: a client that hangs up both ways at once is not told that its call does not exist.
REMEMBERED = 256

_STOP_NOTICE = "the server is stopping; call again in a moment"


class Busy(Exception):
    """Every slot is taken."""


class Stopping(Exception):
    """The server takes no more calls."""


class Calls:
    """Async context manager that owns every call's task. Leaving it ends all calls and waits for them.

    A call holds one of `limit` slots from before its connection is built until after it is freed, on every path.
    """

    def __init__(self, limit: int, config: PeerConfig, make_session: MakeSession, slot_wait_s: float = 0.7) -> None:
        self.limit = limit
        self.stopping = False
        self.ended: Counter[str] = Counter()
        self._config = config
        self._make_session = make_session
        self._slot_wait_s = slot_wait_s
        self._slots = asyncio.Semaphore(limit)
        self._calls: dict[str, Call | SocketCall] = {}
        self._over: deque[str] = deque(maxlen=REMEMBERED)
        self._tasks = asyncio.TaskGroup()
        self._idle = asyncio.Event()
        self._idle.set()

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop("server stopped")
        await self._tasks.__aexit__(kind, error, trace)

    @property
    def active(self) -> int:
        """Calls that hold a slot, those still connecting included."""
        return len(self._calls)

    def view(self) -> dict[str, Any]:
        """Figures for an operator. No call ids: who knows one can end the call."""
        return {
            "active": self.active,
            "limit": self.limit,
            "ended": dict(self.ended),
            "each": [call.view() for call in self._calls.values()],
        }

    async def place(self, offer: str, early: list[dict[str, Any]]) -> tuple[str, str]:
        """Answer an offer: (call id, SDP answer). The call then runs on its own; `early`: events before all others.

        A slot that is just being freed (a page that reloads) is waited for shortly.
        Raises Busy, Stopping or OfferError.
        """
        await self._take_slot()
        call = Call(_new_id(), self._config, self._make_session)
        try:
            self._enter(call)
            answer = await call.answer(offer, early)
            self._tasks.create_task(self._run(call), name=call.id)
        except BaseException:
            await call.release()
            self._forget(call)
            self._slots.release()
            raise
        return call.id, answer

    async def carry(
        self,
        socket: WebSocket,
        early: list[dict[str, Any]],
        pcm_rate: int | None = None,
        subprotocol: str | None = None,
    ) -> None:
        """Accept a WebSocket and run a call on it until it is over: the realtime protocol, or bare PCM16 at `pcm_rate`.

        Raises Busy or Stopping before it is accepted.
        """
        await self._take_slot()
        config = SocketConfig(close_s=self._config.close_s)
        call: SocketCall
        if pcm_rate is None:
            call = RealtimeSocket(_new_id(), config, self._make_session)
        else:
            call = PcmSocket(_new_id(), config, self._make_session, pcm_rate)
        try:
            self._enter(call)
            await socket.accept(subprotocol)
            await call.run(socket, early)
        finally:
            call.end("cancelled")
            self.ended[call.reason] += 1
            self._forget(call)
            self._slots.release()

    async def _take_slot(self) -> None:
        if self.stopping:
            raise Stopping
        try:
            async with asyncio.timeout(self._slot_wait_s):
                await self._slots.acquire()
        except TimeoutError:
            raise Busy from None
        if self.stopping:
            self._slots.release()
            raise Stopping

    def _enter(self, call: Call | SocketCall) -> None:
        self._calls[call.id] = call
        self._idle.clear()
        if self.stopping:
            call.end("server stopped", _STOP_NOTICE)

    def end(self, call_id: str, reason: str) -> bool:
        """Ask a call to end; one that has just ended by itself is fine too. False if there is no such call."""
        call = self._calls.get(call_id)
        if call is not None:
            call.end(reason)
        return call is not None or call_id in self._over

    def stop(self, reason: str) -> None:
        """Take no more calls, and ask all of them to end; their clients are told that the server stops."""
        self.stopping = True
        for call in list(self._calls.values()):
            call.end(reason, _STOP_NOTICE)

    async def idle(self) -> None:
        """Wait until no call is left."""
        await self._idle.wait()

    async def _run(self, call: Call) -> None:
        try:
            await call.run()
        finally:
            self.ended[call.reason] += 1
            self._forget(call)
            self._slots.release()

    def _forget(self, call: Call | SocketCall) -> None:
        if self._calls.pop(call.id, None) is not None:
            self._over.append(call.id)
        if not self._calls:
            self._idle.set()


def _new_id() -> str:
    return f"call_{secrets.token_hex(16)}"
