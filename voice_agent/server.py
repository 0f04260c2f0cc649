"""The HTTP side: the page, what an operator asks, and the server's life; calls are placed by `signalling`."""

from __future__ import annotations

import asyncio
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
from aiortc.rtcicetransport import parse_stun_turn_uri
from fastapi import FastAPI, WebSocket
from fastapi.responses import JSONResponse, Response
from fastapi.staticfiles import StaticFiles

from voice_agent.media.access import ClientSecrets
from voice_agent.media.calls import Calls
from voice_agent.media.guard import Guard, error_response
from voice_agent.media.heap import give_back_when_idle
from voice_agent.media.lag import LoopLag, process_figures
from voice_agent.media.peer import MakeSession, PeerConfig
from voice_agent.media.slow_clients import ImpatientProtocol
from voice_agent.media.socket import SocketConfig
from voice_agent.metrics import CONTENT_TYPE_LATEST, generate_latest, make_registry
from voice_agent.signalling import Refusal, create_router, not_found, refused

log = logging.getLogger(__name__)

Hook = Callable[[], Awaitable[None]]


@dataclass(frozen=True)
class ServerConfig:
    """What a server is told.

    `host_candidates`: the addresses that ICE offers; empty: 127.0.0.1 and the addresses of this machine.
    `ice_servers`: STUN and TURN servers as browsers take them (`{"urls", "username", "credential"}`), for this side and
    for the page: whoever may open it can read them. Of each kind this side uses the first.
    `api_key`: if set, every way to a call and to its data asks for it as a Bearer key.
    `trusted_proxies`: addresses of reverse proxies whose X-Forwarded-For and X-Forwarded-Proto are believed.
    `calls_per_minute`: that one address may place, on average, as many at once; null: no limit.
    `certificate`, `key`: PEM files, for https; both or neither.
    `allowed_origins`: pages of other origins that may call (`https://shop.example`); the server's own page always may.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    max_calls: int = 4
    calls_per_minute: int | None = 120
    trusted_proxies: tuple[str, ...] = ()
    host_candidates: tuple[str, ...] = ()
    ice_servers: tuple[dict[str, str], ...] = ()
    api_key: str | None = field(default=None, repr=False)
    allowed_origins: tuple[str, ...] = ()
    certificate: str | None = None
    key: str | None = None
    max_offer_bytes: int = 65_536
    body_s: float = 10.0
    slot_wait_s: float = 0.7
    stop_grace_s: float = 10.0
    stop_linger_s: float = 1.0
    connect_s: float = 15.0
    silence_s: float = 9.0

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("expected server.certificate and server.key, got only one of them")
        for server in self.ice_servers:
            _check_ice_server(server)

    def peer(self) -> PeerConfig:
        """The part of it that a call needs."""
        servers = tuple(RTCIceServer(**server) for server in self.ice_servers)
        return PeerConfig(
            hosts=self.host_candidates,
            ice_servers=servers,
            connect_s=self.connect_s,
            silence_s=self.silence_s,
        )


def _check_ice_server(server: dict[str, str]) -> None:
    """Raises ValueError for what no browser would take."""
    if unknown := set(server) - {"urls", "username", "credential"}:
        raise ValueError(f"ice_servers: expected urls, username and credential, got {sorted(unknown)}")
    urls = server.get("urls", "")
    try:
        parse_stun_turn_uri(urls)
    except ValueError:
        raise ValueError(f"ice_servers: expected urls such as turn:turn.shop.example:3478, got {urls!r:.100}") from None
    if urls.startswith("turn") and not {"username", "credential"} <= set(server):
        raise ValueError(f"ice_servers: expected username and credential for {urls:.100}, got {sorted(server)}")


def create_app(
    config: ServerConfig,
    make_session: MakeSession,
    info: dict[str, Any],
    page_dir: Path | None = None,
    on_start: Hook | None = None,
    on_stop: Hook | None = None,
    stats: Callable[[], dict[str, Any]] | None = None,
) -> FastAPI:
    """The application. `info`, and the ICE servers, are what GET /v1/agent returns; `page_dir` holds an index.html for
    GET /.

    `on_start` runs before the first request, `on_stop` after the last call has ended; `stats` adds to
    GET /v1/calls/stats and, with its `engine`, to GET /metrics. `app.state.calls` are the calls while it runs.
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
                    heap = tasks.create_task(give_back_when_idle(calls), name="heap")
                    yield
                heap.cancel()
                probe.cancel()
        finally:
            if on_stop is not None:
                await on_stop()

    app = FastAPI(lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.state.config = config
    app.add_exception_handler(Refusal, refused)
    app.add_exception_handler(404, not_found)
    app.add_exception_handler(405, not_found)
    client_secrets = ClientSecrets()
    app.include_router(create_router(config, client_secrets))

    @app.get("/v1/agent")
    async def agent() -> JSONResponse:
        return JSONResponse({**info, "ice_servers": config.ice_servers} if config.ice_servers else info)

    @app.get("/healthz")
    async def health() -> JSONResponse:
        stopping = app.state.calls.stopping
        return JSONResponse({"status": "stopping" if stopping else "ok"}, status_code=503 if stopping else 200)

    def figures() -> dict[str, Any]:
        calls: Calls = app.state.calls
        lag: LoopLag = app.state.lag
        told = stats() if stats is not None else {}
        return {"calls": calls.view(), "loop_lag": lag.percentiles(), **told}

    @app.get("/v1/calls/stats")
    async def call_stats() -> JSONResponse:
        return JSONResponse({**figures(), "process": await process_figures()})

    registry = make_registry(figures)

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    @app.websocket("/{path:path}")
    async def no_socket(socket: WebSocket) -> None:
        await socket.send_denial_response(error_response(404, f"no such route: {socket.url.path[:100]}"))

    if page_dir is not None:
        app.mount("/", StaticFiles(directory=page_dir, html=True), name="page")
    app.add_middleware(
        Guard,
        api_key=config.api_key,
        allowed_origins=config.allowed_origins,
        client_secrets=client_secrets,
        calls_per_minute=config.calls_per_minute,
    )
    return app


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
                ssl_certfile=config.certificate,
                ssl_keyfile=config.key,
                # A header that anybody can write is believed only from proxies that were named.
                proxy_headers=bool(config.trusted_proxies),
                forwarded_allow_ips=list(config.trusted_proxies),
                ws="websockets-sansio",
                ws_max_size=SocketConfig().max_event_bytes,
                ws_per_message_deflate=False,
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
