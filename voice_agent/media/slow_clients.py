"""Cuts off HTTP clients that take their time with the head of a request; uvicorn itself waits for ever."""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_LIMIT_S = 10.0


class ImpatientProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 with `HEAD_LIMIT_S` for request line and headers, from the connection or their first byte."""

    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._head_timer = self.loop.call_later(HEAD_LIMIT_S, self.transport.close)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]:
            if self._head_timer is None:
                self._head_timer = self.loop.call_later(HEAD_LIMIT_S, self.transport.close)
        else:
            self._stop_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
