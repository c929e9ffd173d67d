"""Security of the server: who may ask, how much, and what a page may load.

The address holds a token, so that only who has the address is answered. The name of the host
is checked, so that a page of another site cannot reach the server by a name that it makes
point to this machine (DNS rebinding). See docs/security.md.
"""

import secrets
from collections.abc import Sequence

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_HOSTS = frozenset({"127.0.0.1", "localhost"})
_WRITING = frozenset({"POST", "PUT", "PATCH", "DELETE"})

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data:; connect-src 'self'; frame-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'self'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


class Guard:
    """Refuses requests from elsewhere, and adds the headers of security to each response."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self.app, self.token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; connections of other protocols are closed."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        refusal = self._refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, _with_headers(send))
            return
        prefix = f"/{self.token}"
        inner = {**scope, "path": scope["path"][len(prefix) :] or "/", "root_path": ""}
        await self.app(inner, receive, _with_headers(send))

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        """Why a request is refused; None if it is not."""
        hosts = _values(scope, b"host")
        if len(hosts) != 1 or hosts[0].rpartition(":")[0] not in _HOSTS:
            return PlainTextResponse("host must be 127.0.0.1 or localhost\n", 421)
        origins = _values(scope, b"origin")
        if any(origin != f"http://{hosts[0]}" for origin in origins):
            return PlainTextResponse("origin must be this server\n", 403)
        sites = _values(scope, b"sec-fetch-site")
        if scope["method"] in _WRITING and not set(sites) <= {"same-origin", "none"}:
            return PlainTextResponse("a request must come from a page of this server\n", 403)
        first = scope["path"].split("/")[1] if scope["path"].startswith("/") else ""
        if not secrets.compare_digest(first.encode(), self.token.encode()):
            return PlainTextResponse(
                "the address must have the token that `visprism view` printed\n", 403
            )
        return None


def _values(scope: Scope, name: bytes) -> Sequence[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


def _with_headers(send: Send) -> Send:
    """Sends a response with the headers of security, where it has none of the name."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            present = {key for key, _ in message["headers"]}
            message["headers"] = [
                *message["headers"],
                *(
                    (key.encode(), value.encode())
                    for key, value in HEADERS.items()
                    if key.encode() not in present
                ),
            ]
        await send(message)

    return send_with_headers
