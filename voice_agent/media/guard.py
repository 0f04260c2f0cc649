"""Who may ask a server: pages by their origin, callers by their key."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import time
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from voice_agent.media.access import SECRET_PREFIX, ClientSecrets, RateLimit

PLACING = ("/v1/realtime/calls", "/v1/realtime", "/v1/pcm", "/v1/whip")
"""The ways to place a call: by POST, or by opening a WebSocket."""
SECRETS = "/v1/realtime/client_secrets"
FIGURES = ("/v1/calls/stats", "/metrics")
"""What an operator asks."""

_SUBPROTOCOL_KEY = "openai-insecure-api-key."


class Guard:
    """ASGI middleware in front of every route, so that the same rule holds on each way in, WebSockets included.

    A page may call from the server's own origin and from `allowed_origins`; a request without an origin is no page.
    With an `api_key`, /metrics and everything below /v1/ but a preflight ask for it as a Bearer key; a client secret
    opens all but making more of them and the operator's figures. Browsers, which cannot send a Bearer key with a
    WebSocket, give it as a subprotocol `openai-insecure-api-key.<key>`. Calls are placed, and secrets made without a
    key, at a limited rate: by the address that the connection comes from, and by the client secret, which may be used
    from many. A valid secret is left in `scope["state"]["secret"]`.
    """

    def __init__(
        self,
        app: ASGIApp,
        api_key: str | None,
        allowed_origins: tuple[str, ...],
        client_secrets: ClientSecrets,
        calls_per_minute: int | None,
    ) -> None:
        self._app = app
        self._api_key = api_key
        self._allowed_origins = allowed_origins
        self._secrets = client_secrets
        self._rate = RateLimit(calls_per_minute)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        request = HTTPConnection(scope, receive)
        origin = request.headers.get("origin")
        allowed = origin is not None and self._allows(origin, request)
        if origin is not None and not allowed and scope["path"].startswith("/v1/"):
            # Without a header for the origin: the page's script learns nothing.
            text = f"pages of the origin {origin[:100]} may not call this server; allow it with allowed_origins"
            await _refuse(403, text, {}, scope, receive, send)
            return
        cross: dict[str, str] = {}
        if origin is not None and allowed:
            cross = {
                "Access-Control-Allow-Origin": origin,
                "Access-Control-Expose-Headers": "Location, Retry-After, ETag, Link",
                "Vary": "Origin",
            }
        if scope["type"] == "http" and scope["method"] == "OPTIONS":
            preflight = {
                "Access-Control-Allow-Methods": "GET, POST, DELETE, OPTIONS",
                "Access-Control-Allow-Headers": "Authorization, Content-Type, X-OpenAI-Agents-SDK",
                "Access-Control-Max-Age": "600",
            }
            await Response(status_code=204, headers=cross | (preflight if allowed else {}))(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                extra = [(key.lower().encode(), value.encode()) for key, value in cross.items()]
                message["headers"] = [*message["headers"], *extra]
            await send(message)

        guarded = scope["path"].startswith("/v1/") or scope["path"] in FIGURES
        refusal = self._refusal(request) if guarded else None
        if refusal is not None:
            await _refuse(*refusal, scope, receive, send_with_headers)
            return
        await self._app(scope, receive, send_with_headers)

    def _refusal(self, request: HTTPConnection) -> tuple[int, str, dict[str, str]] | None:
        """Why this request may not go on: status, sentence, headers."""
        scope, key = request.scope, _key_of(request)
        if key is not None and key.startswith(SECRET_PREFIX):
            secret = self._secrets.find(key, time.time())
            if secret is None:
                text = "expected a valid client secret, got one that is unknown or has expired"
                return 401, text, {"WWW-Authenticate": "Bearer"}
            if scope["path"] in (SECRETS, *FIGURES):
                return 403, "expected the server's key, got a client secret", {}
            scope.setdefault("state", {})["secret"] = secret
        elif self._api_key is not None and not hmac.compare_digest((key or "").encode(), self._api_key.encode()):
            text = "expected 'Authorization: Bearer <key>' with a valid key"
            return 401, text, {"WWW-Authenticate": "Bearer"}
        placing = scope["type"] == "websocket" or scope["method"] == "POST"
        # Who has the server's key makes secrets for others, as many as it likes.
        if placing and (scope["path"] in PLACING or (scope["path"] == SECRETS and self._api_key is None)):
            callers = {"from your address": scope["client"][0] if scope.get("client") else ""}
            if key is not None and key.startswith(SECRET_PREFIX):
                callers["with this client secret"] = key
            for how, caller in callers.items():
                wait_s = self._rate.take(caller, time.monotonic())
                if wait_s is not None:
                    text = f"too many calls are placed {how}; try again in {wait_s} s"
                    return 429, text, {"Retry-After": str(wait_s)}
        return None

    def _allows(self, origin: str, request: HTTPConnection) -> bool:
        if origin in self._allowed_origins:
            return True
        # The server's own page, but not under a foreign name that was made to point at this machine.
        host = request.headers.get("host", "")
        scheme = {"ws": "http", "wss": "https"}.get(request.scope["scheme"], request.scope["scheme"])
        return origin == f"{scheme}://{host}" and _is_address(host)


def _key_of(request: HTTPConnection) -> str | None:
    kind, _, key = request.headers.get("authorization", "").partition(" ")
    if kind == "Bearer" and key:
        return key
    if request.scope["type"] == "websocket":
        offered = [name for name in request.scope["subprotocols"] if name.startswith(_SUBPROTOCOL_KEY)]
        if offered:
            return str(offered[0].removeprefix(_SUBPROTOCOL_KEY))
    return None


async def _refuse(status: int, text: str, headers: dict[str, str], scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await WebSocket(scope, receive, send).send_denial_response(error_response(status, text, headers))
    else:
        await UnreadRefusal(status, text, headers)(scope, receive, send)


def _is_address(host: str) -> bool:
    """Whether a Host header names this machine or an address, and not a domain."""
    try:
        hostname = urlsplit(f"//{host}").hostname or ""
        return hostname == "localhost" or bool(ipaddress.ip_address(hostname))
    except ValueError:
        return False


def error_response(status: int, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """An error as the realtime protocol writes it: `{"error": {"type", "message"}}`."""
    return JSONResponse(_error(status, message), status_code=status, headers=headers)


class UnreadRefusal(JSONResponse):
    """An error for a request whose body was not read, or not to its end; the connection closes after it.

    The answer goes out at once. Then the rest of the body is thrown away for up to `linger_s` and `linger_bytes`:
    closing with unread data resets the connection, and the client would lose the answer.
    """

    linger_s = 2.0
    linger_bytes = 32 << 20

    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        headers = {"Connection": "close"} | (headers or {})
        super().__init__(_error(status, message), status_code=status, headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        left = self.linger_bytes
        try:
            async with asyncio.timeout(self.linger_s):
                while left > 0:
                    message = await receive()
                    left -= len(message.get("body", b""))
                    if message["type"] != "http.request" or not message.get("more_body", False):
                        break
        except TimeoutError:
            pass  # a client that is still sending has had its answer
        await send({"type": "http.response.body", "body": b""})


def _error(status: int, message: str) -> dict[str, dict[str, str]]:
    return {"error": {"type": "server_error" if status >= 500 else "invalid_request_error", "message": message}}
