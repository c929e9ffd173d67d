"""The worker: one thread that answers live requests in turn, equal ones once."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from visprism.app.library import BusyError

_ANSWERS = 128  # that are remembered


@dataclass(eq=False)
class _Call:
    """A call of the thread, the value for those who wait for it, and how many these are."""

    work: Future[Any]
    value: asyncio.Future[Any]
    clients: int = 0


class Worker:
    """Runs functions one after another, so that models and memory are used by one at a time."""

    def __init__(self, waiting: int) -> None:
        self.limit = waiting
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="live")
        self._answers: OrderedDict[Hashable, Any] = OrderedDict()
        self._calls: dict[Hashable, _Call] = {}

    async def answer(self, key: Hashable, function: Callable[[], Any]) -> Any:
        """The value of `function`; equal keys share one call.

        A call that has not begun is dropped when the last client that waits for it leaves, by
        canceling this coroutine.

        Raises:
            BusyError: if too many requests wait.
        """
        if key in self._answers:
            self._answers.move_to_end(key)
            return self._answers[key]
        call = self._calls.get(key)
        if call is None:
            if len(self._calls) >= self.limit:
                raise BusyError
            call = self._calls[key] = self._begin(key, function)
        call.clients += 1
        try:
            return await asyncio.shield(call.value)
        finally:
            call.clients -= 1
            if not call.clients and call.work.cancel():
                del self._calls[key]

    def _begin(self, key: Hashable, function: Callable[[], Any]) -> _Call:
        work = self._thread.submit(function)
        value = asyncio.wrap_future(work)
        value.add_done_callback(lambda value: self._end(key, value))
        return _Call(work, value)

    def _end(self, key: Hashable, value: asyncio.Future[Any]) -> None:
        """Remember the value of a call that was not dropped."""
        call = self._calls.get(key)
        if call is None or call.value is not value:
            return
        del self._calls[key]
        if not value.cancelled() and value.exception() is None:
            self._answers[key] = value.result()
        while len(self._answers) > _ANSWERS:
            self._answers.popitem(last=False)

    def close(self) -> None:
        """End the thread after the request that it answers."""
        self._thread.shutdown(wait=False, cancel_futures=True)
