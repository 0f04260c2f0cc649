"""The calls of a server: slots, ownership of their tasks, and the way they all end."""

from __future__ import annotations

import asyncio
import functools
import secrets
from collections import Counter, OrderedDict, deque
from types import TracebackType
from typing import Any, Self

from starlette.websockets import WebSocket

from voice_agent.media.peer import Call, MakeSession, PeerConfig
from voice_agent.media.socket import PcmSocket, RealtimeSocket, SocketCall, SocketConfig

# Calls that ended lately: a client that hangs up both ways at once is not told that its call does not exist.
REMEMBERED = 256

# What a call leaves for one that takes its place: how many, how long, and how long a call may take to let go.
MEMORIES = 32
MEMORY_S = 60.0
LET_GO_S = 3.0

CLIENT_ENDED = "the client ended the call"
"""The reason of a call whose client asked for its end; it leaves nothing."""

_STOP_NOTICE = "the server is stopping; call again in a moment"


class Busy(Exception):
    """Every slot is taken."""


class Stopping(Exception):
    """The server takes no more calls."""


class Forgotten(Exception):
    """There is no such call to take over, or not any more."""


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
        self._memories: OrderedDict[str, object] = OrderedDict()
        self._heirs: OrderedDict[str, str] = OrderedDict()
        self._letting_go: dict[str, asyncio.Event] = {}
        self._tasks = asyncio.TaskGroup()
        self._idle = asyncio.Event()
        self._idle.set()
        self._busy = asyncio.Event()

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

    async def place(self, offer: str, early: list[dict[str, Any]], replaces: str | None = None) -> tuple[str, str]:
        """Answer an offer: (call id, SDP answer). The call then runs on its own; `early`: events before all others.

        A slot that is just being freed (a page that reloads) is waited for shortly. `replaces`: the call, still
        running or ended within `MEMORY_S`, whose state and history the new one goes on with.
        Raises Busy, Stopping, Forgotten or OfferError.
        """
        before = None if replaces is None else await self._let_go(replaces)
        await self._take_slot()
        call_id = _new_id()
        inherit = None if before is None else functools.partial(self._hand_over, before, call_id)
        call = Call(call_id, self._config, self._make_session, inherit)
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
        self._busy.set()
        if self.stopping:
            call.end("server stopped", _STOP_NOTICE)

    async def _let_go(self, call_id: str) -> str:
        """End this call, or the one that took its place, if it still runs; gives the id of the call that was ended.

        Its memory stays for another try until a call that is connected goes on with it, or it is too old.
        """
        while call_id in self._heirs:
            call_id = self._heirs[call_id]
        call = self._calls.get(call_id)
        if isinstance(call, Call):
            gone = self._letting_go.setdefault(call_id, asyncio.Event())
            call.end("taken over")
            try:
                async with asyncio.timeout(LET_GO_S):
                    await gone.wait()
            except TimeoutError:
                raise Busy from None
        if call_id not in self._memories:
            raise Forgotten
        return call_id

    def _hand_over(self, before: str, call_id: str) -> object | None:
        """The memory that `before` left, for this call alone: two calls never share one. None: another has it."""
        memory = self._memories.pop(before, None)
        if memory is not None:
            self._heirs[before] = call_id
            while len(self._heirs) > MEMORIES:
                self._heirs.popitem(last=False)
        return memory

    def end(self, call_id: str, reason: str) -> bool:
        """Ask a call to end, for good; one that has just ended by itself is fine too. False if there is no such."""
        self._memories.pop(call_id, None)
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

    async def busy(self) -> None:
        """Wait until there is a call."""
        await self._busy.wait()

    async def _run(self, call: Call) -> None:
        try:
            await call.run()
        finally:
            self.ended[call.reason] += 1
            self._remember(call)
            self._forget(call)
            self._slots.release()

    def _remember(self, call: Call) -> None:
        """Keep what the call leaves for one that takes its place, unless its client ended it or the server stops."""
        memory = call.memory()
        if memory is not None and not self.stopping and call.reason != CLIENT_ENDED:
            self._memories[call.id] = memory
            asyncio.get_running_loop().call_later(MEMORY_S, self._memories.pop, call.id, None)
            while len(self._memories) > MEMORIES:
                self._memories.popitem(last=False)
        gone = self._letting_go.pop(call.id, None)
        if gone is not None:
            gone.set()

    def _forget(self, call: Call | SocketCall) -> None:
        if self._calls.pop(call.id, None) is not None:
            self._over.append(call.id)
        if not self._calls:
            self._busy.clear()
            self._idle.set()


def _new_id() -> str:
    return f"call_{secrets.token_hex(16)}"
