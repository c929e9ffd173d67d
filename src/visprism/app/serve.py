"""Serving: the app on a port of this machine, until Ctrl-C."""

import logging
import multiprocessing.util
import os
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType

from visprism.app.settings import Settings
from visprism.core.errors import InputError
from visprism.core.interruption import on_interruption

_HOST = "127.0.0.1"
_CONNECTIONS = 500
_IDLE_SECONDS = 15
_CLOSING_SECONDS = 1


def serve(settings: Settings, port: int, ready: Callable[[str], None]) -> None:
    """Serve the app until it is interrupted.

    Args:
        settings: what to serve.
        port: of 127.0.0.1; 0 for one that is free.
        ready: receives the address, with its token.
    """
    try:
        import uvicorn

        from visprism.app.server import Server
    except ModuleNotFoundError as error:
        raise InputError(
            f"the app must have its extra installed, and {error.name} is missing. "
            "Install visprism[app]."
        ) from error
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    with listener:
        try:
            listener.bind((_HOST, port))
        except OSError as error:
            raise InputError(
                f"port must be free, got {port} ({error.strerror}). Choose another, or 0."
            ) from error
        _bound_memory(settings.limits.memory_bytes)
        config = uvicorn.Config(
            Server(settings).app(),
            log_level="warning",
            access_log=False,  # which would print the token
            server_header=False,
            limit_concurrency=_CONNECTIONS,
            timeout_keep_alive=_IDLE_SECONDS,
            timeout_graceful_shutdown=_CLOSING_SECONDS,
        )
        listener.listen()  # a browser that opens the address at once waits
        ready(f"http://{_HOST}:{listener.getsockname()[1]}/{settings.token}/")
        server = uvicorn.Server(config)

        def handle_exit(sig: int, frame: FrameType | None) -> None:
            logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # of what is cut off
            server.should_exit = True

        server.handle_exit = handle_exit
        with on_interruption(lambda: "studies keep what is complete"):
            server.run(sockets=[listener])
    multiprocessing.util._run_finalizers(0)  # pyrefly: ignore (of semaphores, or they leak)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # the end of a Python with torch takes seconds


def _bound_memory(extra: int) -> None:
    """Let a request that takes too much memory fail, instead of this process or others."""
    if sys.platform != "linux":
        return
    import resource

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    soft = pages * resource.getpagesize() + extra
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
