"""Who may ask a server: pages by their origin, callers by their key."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class Guard:
    """ASGI middleware in front of every route, so that the same rule holds on each way in.

    A page may call from the server's own origin and from `allowed_origins`; a request without an origin is no page.
    With an `api_key`, everything below /v1/ but a preflight asks for it as a Bearer key.
    """

    def __init__(self, app: ASGIApp, api_key: str | None, allowed_origins: tuple[str, ...]) -> None:
        self._app = app
        self._api_key = api_key
        self._allowed_origins = allowed_origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        origin = request.headers.get("origin")
        allowed = origin is not None and self._allows(origin, request)
        if origin is not None and not allowed and scope["path"].startswith("/v1/"):
            # Without a header for the origin: the page's script learns nothing.
            text = f"pages of the origin {origin[:100]} may not call this server; allow it with allowed_origins"
            await UnreadRefusal(403, text)(scope, receive, send)
            return
        cross: dict[str, str] = {}
        if origin is not None and allowed:
            cross = {
                "Access-Control-Allow-Origin": origin,
                "Access-Control-Expose-Headers": "Location, Retry-After",
                "Vary": "Origin",
            }
        if request.method == "OPTIONS":
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

        if scope["path"].startswith("/v1/") and not self._has_key(request):
            text = "expected 'Authorization: Bearer <key>' with a valid key"
            await UnreadRefusal(401, text, {"WWW-Authenticate": "Bearer"})(scope, receive, send_with_headers)
            return
        await self._app(scope, receive, send_with_headers)

    def _allows(self, origin: str, request: Request) -> bool:
        if origin in self._allowed_origins:
            return True
        # The server's own page, but not under a foreign name that was made to point at this machine.
        host = request.headers.get("host", "")
        return origin == f"{request.scope['scheme']}://{host}" and _is_address(host)

    def _has_key(self, request: Request) -> bool:
        if self._api_key is None:
            return True
        given = request.headers.get("authorization", "")
        return hmac.compare_digest(given.encode(), f"Bearer {self._api_key}".encode())


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
