"""Who may ask, how much, and what a page may load.

The address holds a token, so that only who has the address is answered. Names of the host are
checked by starlette, so that a page of another site cannot reach the server by a name that it
makes point to this machine (DNS rebinding). See docs/security.md.
"""

import asyncio
import secrets
from contextlib import suppress
from typing import Any

import msgspec
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from visprism.core.errors import InputError

HOSTS = ["127.0.0.1", "localhost"]  # for starlette's TrustedHostMiddleware
_SEND_SECONDS = 60.0  # in which a client must read a part of an answer
_WRITING = frozenset({"POST", "PUT", "PATCH", "DELETE"})

_HEADERS = {
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
        """Answer one request below the token; connections of other protocols are closed."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            async with asyncio.timeout(_SEND_SECONDS):
                await send(message)

        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            refusal = self._refusal(scope)
            if refusal:
                answer = PlainTextResponse(f"{refusal}\n", 403)
                await answer(scope, receive, send_with_headers)
                return
            path = scope["path"][len(self.token) + 1 :] or "/"
            inner = {**scope, "path": path, "root_path": ""}
            with suppress(TimeoutError):
                await self.app(inner, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> str:
        """Why a request is refused; empty if it is not."""
        headers = Headers(scope=scope)
        if any(o != f"http://{headers.get('host')}" for o in headers.getlist("origin")):
            return "origin must be this server"
        sites = set(headers.getlist("sec-fetch-site"))
        if scope["method"] in _WRITING and not sites <= {"same-origin", "none"}:
            return "a request must come from a page of this server"
        first = scope["path"].split("/")[1] if scope["path"].startswith("/") else ""
        if not secrets.compare_digest(first.encode(), self.token.encode()):
            return "the address must have the token that `visprism view` printed"
        return ""


async def read_body(request: Request, most: int, seconds: float) -> bytes:
    """The body, of at most `most` bytes, which must arrive within some seconds.

    Raises:
        HTTPException: if it is larger (413), too slow (408) or incomplete (400).
    """
    too_large = HTTPException(413, f"a request must have at most {most / 2**20:g} MiB")
    stated = request.headers.get("content-length", "0")
    if not stated.isdecimal() or int(stated) > most:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for chunk in request.stream():
                body += chunk
                if len(body) > most:
                    raise too_large
    except TimeoutError:
        raise HTTPException(408, f"a request must arrive within {seconds:g} s") from None
    except ClientDisconnect:
        raise HTTPException(400, "a request must be complete") from None
    return bytes(body)


async def read_json(request: Request, most: int, seconds: float) -> dict[str, Any]:
    """The JSON object in a body; other content types are refused (415)."""
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        raise HTTPException(415, "the content type must be application/json")
    body = await read_body(request, most, seconds)
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (ValueError, RecursionError) as error:
        raise InputError("the body of a request must be a JSON object") from error
