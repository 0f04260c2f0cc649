"""The ways to place a call: WebRTC signalling as OpenAI and WHIP write it, WebSockets, and keys for clients."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from typing import TYPE_CHECKING, Any, Literal

from fastapi import APIRouter, Request, Response, WebSocket
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.datastructures import FormData
from starlette.requests import HTTPConnection
from starlette.types import Message

from voice_agent import wire
from voice_agent.media.access import ClientSecret, ClientSecrets, SecretsFull
from voice_agent.media.calls import CLIENT_ENDED, Busy, Calls, Forgotten, Stopping
from voice_agent.media.guard import UnreadRefusal, error_response
from voice_agent.media.offer import OfferError
from voice_agent.media.socket import PcmSocket
from voice_agent.wire.items import SessionConfig

if TYPE_CHECKING:
    from voice_agent.server import ServerConfig

SECRET_S = 600
"""How long a client secret is valid unless its maker says otherwise."""


class Refusal(Exception):
    """An HTTP answer that says no: a status and a sentence for the caller. `unread`: the body was not read."""

    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None, unread: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers or {}
        self.unread = unread


class _Expiry(BaseModel):
    model_config = ConfigDict(extra="forbid")
    anchor: Literal["created_at"] = "created_at"
    seconds: int = Field(SECRET_S, ge=10, le=7200)


class _SecretRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")
    session: SessionConfig | None = None
    expires_after: _Expiry = _Expiry()


def create_router(config: ServerConfig, client_secrets: ClientSecrets) -> APIRouter:
    """The routes. The running `Calls` are looked up in `app.state.calls`."""
    router = APIRouter()

    @router.post("/v1/realtime/calls")
    async def place_call(request: Request) -> Response:
        """`?replaces=` a call's id: the new call goes on with its state and history."""
        offer, session = await _read_offer(request, config)
        call_id, answer = await _place(request, config, offer, [*_of_secret(request), *_updates(session)])
        headers = {"Location": f"/v1/realtime/calls/{call_id}"}
        return Response(answer, status_code=201, media_type="application/sdp", headers=headers)

    @router.delete("/v1/realtime/calls/{call_id}")
    @router.delete("/v1/whip/{call_id}")
    async def end_call(request: Request, call_id: str) -> Response:
        _end(request, call_id)
        return Response(status_code=204)

    @router.post("/v1/realtime/calls/{call_id}/hangup")
    async def hang_up(request: Request, call_id: str) -> Response:
        _end(request, call_id)
        return Response(status_code=200)

    @router.post("/v1/whip")
    async def place_whip_call(request: Request) -> Response:
        """As WHIP (RFC 9725) has it, but the answer sends audio too."""
        kind = _content_type(request)
        if kind != "application/sdp":
            raise Refusal(415, f"expected application/sdp, got {kind[:60] or 'no content type'}", unread=True)
        offer = _text(await _read_body(request, config), "the body")
        call_id, answer = await _place(request, config, offer, _of_secret(request))
        tag = hashlib.sha256(answer.encode()).hexdigest()[:32]
        response = Response(answer, status_code=201, media_type="application/sdp")
        response.headers["Location"] = f"/v1/whip/{call_id}"
        response.headers["ETag"] = f'"{tag}"'
        for server in config.ice_servers:
            response.headers.append("Link", _link(server))
        return response

    @router.post("/v1/realtime/client_secrets")
    async def make_secret(request: Request) -> Response:
        """A key for a client's device, with the session configuration of the calls that it places."""
        body = await _read_body(request, config)
        try:
            asked = _SecretRequest.model_validate_json(body or b"{}")
        except ValidationError as error:
            raise _invalid(error, "the body") from None
        session = None if asked.session is None else asked.session.model_dump(exclude_unset=True)
        try:
            secret = client_secrets.issue(session, asked.expires_after.seconds, time.time())
        except SecretsFull:
            text = "as many client secrets are valid as may be; try again later"
            raise Refusal(503, text, {"Retry-After": "60"}) from None
        shown = {"type": "realtime", **(session or {})}
        return JSONResponse({"value": secret.value, "expires_at": secret.expires_at, "session": shown})

    @router.get("/v1/realtime/schema")
    async def schema() -> Response:
        """JSON schemas of all events, both ways."""
        return JSONResponse(wire.schemas())

    @router.websocket("/v1/realtime")
    async def realtime(socket: WebSocket) -> None:
        if "call_id" in socket.query_params:
            text = "expected no call_id: a call is controlled over its own data channel or WebSocket"
            await socket.send_denial_response(error_response(400, text))
            return
        offered = socket.scope["subprotocols"]
        await _carry(socket, config, None, "realtime" if "realtime" in offered else None)

    @router.websocket("/v1/pcm")
    async def bare_pcm(socket: WebSocket) -> None:
        """Bare PCM16; `?rate=`: its sample rate in Hz, both ways."""
        rate = socket.query_params.get("rate", "16000")
        if rate not in map(str, PcmSocket.RATES):
            text = f"rate: expected one of {', '.join(map(str, PcmSocket.RATES))}, got {rate[:20]!r}"
            await socket.send_denial_response(error_response(400, text))
            return
        await _carry(socket, config, int(rate), None)

    return router


def _calls(request: HTTPConnection) -> Calls:
    calls: Calls = request.app.state.calls
    return calls


def _of_secret(request: HTTPConnection) -> list[dict[str, Any]]:
    """The event that sets what the client secret of this request was made for."""
    secret: ClientSecret | None = request.scope.get("state", {}).get("secret")
    return _updates(secret.session if secret else None)


def _updates(session: dict[str, Any] | None) -> list[dict[str, Any]]:
    return [] if session is None else [{"type": "session.update", "session": session}]


async def _place(request: Request, config: ServerConfig, offer: str, early: list[dict[str, Any]]) -> tuple[str, str]:
    try:
        return await _calls(request).place(offer, early, request.query_params.get("replaces"))
    except Forgotten:
        raise Refusal(404, "no such call to take over; it may have ended some time ago") from None
    except (Busy, Stopping) as error:
        raise _no_call(error, config) from None
    except OfferError as error:
        raise Refusal(error.status, str(error)) from None


async def _carry(socket: WebSocket, config: ServerConfig, pcm_rate: int | None, subprotocol: str | None) -> None:
    try:
        await _calls(socket).carry(socket, _of_secret(socket), pcm_rate, subprotocol)
    except (Busy, Stopping) as error:
        refusal = _no_call(error, config)
        await socket.send_denial_response(error_response(refusal.status, str(refusal), refusal.headers))


def _no_call(error: Busy | Stopping, config: ServerConfig) -> Refusal:
    if isinstance(error, Busy):
        text = f"all {config.max_calls} calls are taken; try again in a moment"
        return Refusal(503, text, {"Retry-After": "5"})
    return Refusal(503, "the server is stopping; try again in a moment", {"Retry-After": "10"})


def _end(request: Request, call_id: str) -> None:
    if not _calls(request).end(call_id, CLIENT_ENDED):
        raise Refusal(404, "no such call; it may have ended")


def _link(server: dict[str, str]) -> str:
    """An ICE server as a Link header (RFC 9725, 4.6)."""
    link = f'<{server["urls"]}>; rel="ice-server"'
    if "username" in server:
        link += f'; username="{server["username"]}"; credential="{server["credential"]}"; credential-type="password"'
    return link


def _content_type(request: Request) -> str:
    return request.headers.get("content-type", "").split(";")[0].strip().lower()


async def _read_offer(request: Request, config: ServerConfig) -> tuple[str, dict[str, Any] | None]:
    """The SDP and, of a multipart form, the session configuration."""
    kind = _content_type(request)
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
    try:
        SessionConfig.model_validate(parsed)
    except ValidationError as error:
        raise _invalid(error, "session") from None
    return texts["sdp"], parsed


def _invalid(error: ValidationError, what: str) -> Refusal:
    first = error.errors(include_url=False)[0]
    where = ".".join(map(str, first["loc"])) or what
    return Refusal(400, f"{where}: {first['msg']}, got {first['input']!r:.60}")


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


async def refused(request: Request, error: Exception) -> Response:
    """The handler of `Refusal`."""
    assert isinstance(error, Refusal)
    kind = UnreadRefusal if error.unread else error_response
    return kind(error.status, str(error), error.headers)


async def not_found(request: Request, error: Exception) -> Response:
    """The handler of 404 and 405."""
    status = getattr(error, "status_code", 404)
    return error_response(status, f"no such route: {request.method} {request.url.path[:100]}")
