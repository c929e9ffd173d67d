"""The worker: one thread that answers live requests in turn."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from visprism.app.library import BusyError


class Worker:
    """Runs functions one after another, so that models and memory are used by one at a time."""

    def __init__(self, limit: int) -> None:
        self.limit, self.waiting = limit, 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="live")

    async def answer(self, function: Callable[[], Any]) -> Any:
        """The value of `function`; canceled before its turn, it is not called."""
        if self.waiting >= self.limit:
            raise BusyError
        self.waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, function)
        finally:
            self.waiting -= 1

    def close(self) -> None:
        """End the thread after the request that it answers."""
        self._thread.shutdown(wait=False, cancel_futures=True)
