"""The HTTP side: the signalling route of the realtime protocol, the page, and what an operator asks."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from aiortc import RTCIceServer
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from fastapi.staticfiles import StaticFiles
from starlette.datastructures import FormData
from starlette.types import Message

from voice_agent import wire
from voice_agent.media.calls import Busy, Calls, Stopping
from voice_agent.media.guard import Guard, UnreadRefusal, error_response
from voice_agent.media.lag import LoopLag, process_figures
from voice_agent.media.offer import OfferError
from voice_agent.media.peer import MakeSession, PeerConfig
from voice_agent.media.slow_clients import ImpatientProtocol

log = logging.getLogger(__name__)

Hook = Callable[[], Awaitable[None]]


@dataclass(frozen=True)
class ServerConfig:
    """What a server is told.

    `host_candidates`: the addresses that ICE offers; empty: 127.0.0.1 and the addresses of this machine.
    `ice_servers`: STUN and TURN servers as browsers take them (`{"urls", "username", "credential"}`).
    `api_key`: if set, every way to a call and to its data asks for it as a Bearer key.
    `allowed_origins`: pages of other origins that may call (`https://shop.example`); the server's own page always may.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    max_calls: int = 4
    host_candidates: tuple[str, ...] = ()
    ice_servers: tuple[dict[str, str], ...] = ()
    api_key: str | None = field(default=None, repr=False)
    allowed_origins: tuple[str, ...] = ()
    max_offer_bytes: int = 65_536
    body_s: float = 10.0
    slot_wait_s: float = 0.7
    stop_grace_s: float = 10.0
    stop_linger_s: float = 1.0
    connect_s: float = 15.0
    silence_s: float = 9.0

    def peer(self) -> PeerConfig:
        """The part of it that a call needs."""
        servers = tuple(RTCIceServer(**server) for server in self.ice_servers)
        return PeerConfig(
            hosts=self.host_candidates,
            ice_servers=servers,
            connect_s=self.connect_s,
            silence_s=self.silence_s,
        )


class Refusal(Exception):
    """An HTTP answer that says no: a status and a sentence for the caller. `unread`: the body was not read."""

    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None, unread: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers or {}
        self.unread = unread


def create_app(
    config: ServerConfig,
    make_session: MakeSession,
    info: dict[str, Any],
    page_dir: Path | None = None,
    on_start: Hook | None = None,
    on_stop: Hook | None = None,
    stats: Callable[[], dict[str, Any]] | None = None,
) -> FastAPI:
    """The application. `info` is what GET /v1/agent returns; `page_dir` holds an index.html for GET /.

    `on_start` runs before the first request, `on_stop` after the last call has ended; `stats` adds to
    GET /v1/calls/stats. `app.state.calls` are the calls while it runs.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        if on_start is not None:
            await on_start()
        lag = LoopLag()
        try:
            async with asyncio.TaskGroup() as tasks:
                probe = tasks.create_task(lag.run(), name="loop lag")
                async with Calls(config.max_calls, config.peer(), make_session, config.slot_wait_s) as calls:
                    app.state.calls, app.state.lag = calls, lag
                    yield
                probe.cancel()
        finally:
            if on_stop is not None:
                await on_stop()

    app = FastAPI(lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.state.config = config
    app.add_exception_handler(Refusal, _refused)
    app.add_exception_handler(404, _not_found)
    app.add_exception_handler(405, _not_found)

    @app.post("/v1/realtime/calls")
    async def place_call(request: Request) -> Response:
        offer, session = await _read_offer(request, config)
        calls: Calls = app.state.calls
        try:
            call_id, answer = await calls.place(offer, session)
        except Busy:
            text = f"all {config.max_calls} calls are taken; try again in a moment"
            raise Refusal(503, text, {"Retry-After": "5"}) from None
        except Stopping:
            raise Refusal(503, "the server is stopping; try again in a moment", {"Retry-After": "10"}) from None
        except OfferError as error:
            raise Refusal(error.status, str(error)) from None
        headers = {"Location": f"/v1/realtime/calls/{call_id}"}
        return Response(answer, status_code=201, media_type="application/sdp", headers=headers)

    @app.delete("/v1/realtime/calls/{call_id}")
    async def end_call(call_id: str) -> Response:
        if not app.state.calls.end(call_id, "the client ended the call"):
            raise Refusal(404, "no such call; it may have ended")
        return Response(status_code=204)

    @app.get("/v1/realtime/schema")
    async def schema() -> JSONResponse:
        return JSONResponse(wire.schemas())

    @app.get("/v1/agent")
    async def agent() -> JSONResponse:
        return JSONResponse(info)

    @app.get("/healthz")
    async def health() -> JSONResponse:
        stopping = app.state.calls.stopping
        return JSONResponse({"status": "stopping" if stopping else "ok"}, status_code=503 if stopping else 200)

    @app.get("/v1/calls/stats")
    async def call_stats() -> JSONResponse:
        calls: Calls = app.state.calls
        return JSONResponse(
            {
                "calls": calls.view(),
                "loop_lag": app.state.lag.percentiles(),
                "process": await process_figures(),
                **(stats() if stats is not None else {}),
            }
        )

    if page_dir is not None:
        app.mount("/", StaticFiles(directory=page_dir, html=True), name="page")
    app.add_middleware(Guard, api_key=config.api_key, allowed_origins=config.allowed_origins)
    return app


async def _read_offer(request: Request, config: ServerConfig) -> tuple[str, dict[str, Any] | None]:
    """The SDP and, of a multipart form, the session configuration."""
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind not in ("application/sdp", "multipart/form-data"):
        raise Refusal(
            415, f"expected application/sdp or multipart/form-data, got {kind[:60] or 'no content type'}", unread=True
        )
    body = await _read_body(request, config)
    if kind == "application/sdp":
        return _text(body, "the body"), None
    try:
        form = await _parse_form(request, body)
    except Exception as error:
        raise Refusal(
            400, f"expected a multipart form with the field sdp, got one that fails ({error!s:.100})"
        ) from None
    offer, session = form.get("sdp"), form.get("session")
    texts = {}
    for name, value in (("sdp", offer), ("session", session)):
        if value is not None:
            texts[name] = value if isinstance(value, str) else _text(await value.read(), name)
    await form.close()
    if "sdp" not in texts:
        raise Refusal(400, f"expected the form field sdp, got {sorted(form)[:8]}")
    if "session" not in texts:
        return texts["sdp"], None
    try:
        parsed = json.loads(texts["session"])
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        raise Refusal(400, "expected a JSON object in the form field session, got something else")
    return texts["sdp"], parsed


async def _read_body(request: Request, config: ServerConfig) -> bytes:
    limit = config.max_offer_bytes
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise Refusal(413, f"expected a body of at most {limit} bytes, got {declared}", unread=True)
    body = bytearray()
    try:
        async with asyncio.timeout(config.body_s):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limit:
                    text = f"expected a body of at most {limit} bytes, got more"
                    raise Refusal(413, text, unread=True)
    except TimeoutError:
        text = f"expected the whole body within {config.body_s:.0f} s, got {len(body)} bytes"
        raise Refusal(408, text, unread=True) from None
    return bytes(body)


async def _parse_form(request: Request, body: bytes) -> FormData:
    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    return await Request(request.scope, receive).form(max_files=4, max_fields=8)


def _text(data: bytes, what: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Refusal(400, f"expected UTF-8 text in {what}, got other bytes") from None


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    kind = UnreadRefusal if error.unread else error_response
    return kind(error.status, str(error), error.headers)


async def _not_found(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    return error_response(status, f"no such route: {request.method} {request.url.path[:100]}")


class Server(uvicorn.Server):
    """uvicorn that ends calls politely on SIGTERM or SIGINT and exits with 0; a second signal ends it at once.

    `listening` is set when it accepts connections.
    """

    def __init__(self, app: FastAPI, config: ServerConfig) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                host=config.host,
                port=config.port,
                log_level="warning",
                access_log=False,
                http=ImpatientProtocol,
                ws="none",
                h11_max_incomplete_event_size=16_384,
                timeout_keep_alive=10,
                timeout_graceful_shutdown=2,
            )
        )
        self.listening = asyncio.Event()
        self._app = app
        self._settings = config
        self._stop = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Signal handler. New offers get 503 from here on."""
        if self._stop.is_set() or not self.started:
            self.should_exit = True
            self.force_exit = self._stop.is_set()
            return
        loop = asyncio.get_running_loop()
        loop.call_soon_threadsafe(self._stop.set)
        loop.call_soon_threadsafe(self._app.state.calls.stop, "server stopped")

    async def run_until_stopped(self) -> None:
        """Serve until a signal or `stop`."""
        async with asyncio.TaskGroup() as tasks:
            stopping = tasks.create_task(self._end_calls(), name="server stop")
            await self.serve()
            stopping.cancel()

    def stop(self) -> None:
        """What SIGTERM does."""
        self.handle_exit(signal.SIGTERM, None)

    async def _end_calls(self) -> None:
        await self._stop.wait()
        calls: Calls = self._app.state.calls
        calls.stop("server stopped")
        try:
            async with asyncio.timeout(self._settings.stop_grace_s):
                # The listener stays a moment, so that callers meet a refusal and not a closed port.
                await asyncio.gather(calls.idle(), asyncio.sleep(self._settings.stop_linger_s))
        except TimeoutError:
            log.error("%d calls did not end within %.0f s", calls.active, self._settings.stop_grace_s)
        self.should_exit = True
