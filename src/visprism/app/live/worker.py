"""The worker: one thread that answers live requests in turn, equal ones once."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from visprism.app.library import BusyError

_ANSWERS = 128  # that are remembered


class Worker:
    """Runs functions one after another, so that models and memory are used by one at a time."""

    def __init__(self, waiting: int) -> None:
        self.limit, self.waiting = waiting, 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="live")
        self._answers: OrderedDict[Hashable, Any] = OrderedDict()
        self._pending: dict[Hashable, asyncio.Future[Any]] = {}

    async def answer(self, key: Hashable, function: Callable[[], Any]) -> Any:  # noqa: ANN401
        """The value of `function`; equal keys share one call.

        A client that leaves does not end the call, for which others may wait.

        Raises:
            BusyError: if too many requests wait.
        """
        if key in self._answers:
            self._answers.move_to_end(key)
            return self._answers[key]
        if key not in self._pending:
            if self.waiting >= self.limit:
                raise BusyError
            self._pending[key] = asyncio.ensure_future(self._called(key, function))
        return await asyncio.shield(self._pending[key])

    async def _called(self, key: Hashable, function: Callable[[], Any]) -> Any:  # noqa: ANN401
        self.waiting += 1
        try:
            loop = asyncio.get_running_loop()
            value = await loop.run_in_executor(self._thread, function)
        finally:
            self.waiting -= 1
            self._pending.pop(key, None)
        self._answers[key] = value
        while len(self._answers) > _ANSWERS:
            self._answers.popitem(last=False)
        return value

    def close(self) -> None:
        """End the thread after the request that it answers."""
        self._thread.shutdown(wait=False, cancel_futures=True)
