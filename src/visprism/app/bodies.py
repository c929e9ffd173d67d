"""Bodies of requests: read up to a limit of bytes and of seconds."""

import asyncio
import json
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from visprism.core.errors import InputError


async def read_body(request: Request, most: int, seconds: float) -> bytes:
    """The body, of at most `most` bytes, which must arrive within some seconds.

    Raises:
        HTTPException: if it is larger (413), too slow (408) or incomplete (400).
    """
    stated = request.headers.get("content-length", "0")
    if not stated.isdecimal() or int(stated) > most:
        raise HTTPException(413, f"a request must have at most {most} bytes, got {stated}")
    body = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for chunk in request.stream():
                body += chunk
                if len(body) > most:
                    raise HTTPException(413, f"a request must have at most {most} bytes")
    except TimeoutError:
        raise HTTPException(408, f"a request must arrive within {seconds:g} s") from None
    except ClientDisconnect:
        raise HTTPException(400, "a request must be complete") from None
    return bytes(body)


async def read_json(request: Request, most: int, seconds: float) -> dict[str, Any]:
    """The JSON object in a body.

    Raises:
        HTTPException: as `read_body`, and 415 for another content type.
        InputError: if the body is no JSON object.
    """
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        raise HTTPException(415, "the content type must be application/json")
    body = await read_body(request, most, seconds)
    try:
        values = json.loads(body, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise InputError("the body of a request must be JSON") from None
    if not isinstance(values, dict):
        raise InputError("the body of a request must be a JSON object")
    return values


def _refuse(constant: str) -> float:
    raise ValueError(constant)
