"""Pages and exports of studies, rendered in another process that keeps drawn figures.

Pages come only from the results, never from a page in the folder of a study, which may be of
somebody else.
"""

import asyncio
import multiprocessing
import pickle
import signal
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from functools import lru_cache, partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

from starlette.exceptions import HTTPException

from visprism.app.child_process import end_with_parent
from visprism.core.errors import InputError
from visprism.core.files import is_of_user
from visprism.report.drawings import Drawing, drawings
from visprism.report.page import PageFigures, page_html, script_hashes
from visprism.study.evolve import alarms_of_run, joined
from visprism.study.exports import json_of, markdown_of
from visprism.study.report_content import content_of
from visprism.study.steps import steps_of_run
from visprism.study.store import INDEX
from visprism.study.study import Study

Value = TypeVar("Value")

_MOST_WAITING = 12  # renderings of each process, including the one that it makes
_MOST_BYTES = 64 * 2**20  # of what was rendered
_LATER = 3  # seconds after which a client that is refused may ask again
_BUSY = "other studies are being drawn at the moment, so try again in some seconds"
_HEAD = 2**17  # bytes of a page in which its policy stands
_MOST_FIGURES = 600  # that the process keeps: about 60 MB
_FIGURES: dict[bytes, str | None] = {}  # of the process that draws


class Renderer:
    """Renders studies in two processes: one for numbers, and one that draws.

    Each renders one after another. Who asks for the same shares one rendering, which is kept
    for the next; beyond a number that waits, a request is refused.
    """

    def __init__(self, longest: float = 60.0) -> None:
        self._longest = longest  # seconds for a figure, or for what has none
        self._pools: dict[bool, ProcessPoolExecutor] = {}  # by whether it draws
        self._turns = {draws: asyncio.Lock() for draws in (False, True)}
        self._running: dict[tuple, asyncio.Task[Any]] = {}
        self._rendered: OrderedDict[tuple, Any] = OrderedDict()  # the last one used last

    async def page(self, folder: Path, *, figures: bool) -> str:
        """The report of the results that a folder has by now, with or without figures."""
        return await self._of(folder, partial(_page, folder, figures=figures), draws=figures)

    async def export(self, folder: Path, name: str) -> str:
        """``study.md`` or ``results.json`` of a study."""
        return await self._of(folder, partial(_export, folder, name))

    async def summary(self, folder: Path) -> dict:
        """Models, number of images and the lines of a study at a glance."""
        return await self._of(folder, partial(_summary, folder))

    def close(self) -> None:
        """End the processes, also one that draws."""
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)
        for process in multiprocessing.active_children():
            process.kill()

    async def _of(self, folder: Path, render: "partial[Any]", *, draws: bool = False) -> Any:
        """What a rendering gives, of the results that the folder has now."""
        stamp = await asyncio.to_thread(_stamp, folder)
        key = (draws, render.func.__name__, render.args, stamp)
        if key in self._rendered:
            self._rendered.move_to_end(key)
            return self._rendered[key]
        if key not in self._running:
            if sum(other[0] is draws for other in self._running) >= _MOST_WAITING:
                raise HTTPException(503, _BUSY, headers={"retry-after": f"{_LATER}"})
            task = asyncio.ensure_future(self._in_turn(render, draws))
            self._running[key] = task
            task.add_done_callback(partial(self._keep, key))
        return await asyncio.shield(self._running[key])

    def _keep(self, key: tuple, task: "asyncio.Task[Any]") -> None:
        del self._running[key]
        if task.cancelled() or task.exception() is not None:
            return
        self._rendered[key] = task.result()
        while sum(map(_size, self._rendered.values())) > _MOST_BYTES:
            self._rendered.popitem(last=False)

    async def _in_turn(self, render: Callable[[], Any], draws: bool) -> Any:
        loop, render = asyncio.get_running_loop(), partial(_in_time, render, self._longest)
        async with self._turns[draws]:
            try:
                return await loop.run_in_executor(self._process(draws), render)
            except BrokenProcessPool:  # it was killed, by the system for its memory perhaps
                del self._pools[draws]
            try:
                return await loop.run_in_executor(self._process(draws), render)
            except BrokenProcessPool as error:
                del self._pools[draws]
                raise InputError(
                    f"results must be shown within {self._longest:g} s, in the memory there is"
                ) from error

    def _process(self, draws: bool) -> ProcessPoolExecutor:
        if draws not in self._pools:
            context = multiprocessing.get_context("spawn")
            self._pools[draws] = ProcessPoolExecutor(1, context, initializer=end_with_parent)
        return self._pools[draws]


def stored_page(folder: Path) -> Path | None:
    """The report in a folder, if this user and this version wrote it after the results.

    Its header has the hashes of the only scripts that the server allows a report to run.
    """
    page = _current(folder, "report.html")
    if page is not None:
        with suppress(OSError), page.open("rb") as file:
            if script_hashes().encode() in file.read(_HEAD):
                return page
    return None


def _current(folder: Path, name: str) -> Path | None:
    path, index = folder / name, folder / INDEX
    with suppress(OSError):
        if is_of_user(path) and path.stat().st_mtime_ns >= index.stat().st_mtime_ns:
            return path
    return None


def _size(value: Any) -> int:
    return len(value) if isinstance(value, str) else 2**12


def _in_time(render: Callable[[], Value], longest: float) -> Value:
    """What `render` gives; the process ends if a part of it takes too long, even in C."""
    _set_timer(longest)
    try:
        return render()
    finally:
        _set_timer(0)


def _set_timer(longest: float | None = None) -> None:
    """Start the timer that ends this process; None: again, where it runs."""
    if hasattr(signal, "setitimer"):  # not on Windows
        if longest is None:
            _, longest = signal.getitimer(signal.ITIMER_REAL)
        signal.setitimer(signal.ITIMER_REAL, longest, longest)


def _study(folder: Path) -> Study:
    """The study of a folder, or what a monitor has written into it by now."""
    if (folder / INDEX).is_file():
        return Study.load(folder)
    steps = steps_of_run(folder).items()
    if not steps:
        raise InputError("no result is complete")
    studies = {step: _step(path, _stamp(path)) for step, path in steps}
    name = folder.resolve().name
    return joined({name: studies}, raised={name: alarms_of_run(folder)})


@lru_cache(1024)
def _step(folder: Path, _stamp: int) -> Study:
    """A study of a monitor, read once and in its own time."""
    _set_timer()
    return Study.load(folder)


def _page(folder: Path, *, figures: bool) -> str:
    content = content_of(_study(folder))
    page = PageFigures(content)
    if len(_FIGURES) > _MOST_FIGURES:
        _FIGURES.clear()
    for drawing in drawings(content) if figures else ():
        markup = _svg(drawing)
        if markup is not None:
            page.add(drawing, markup)
    return page_html(content, page)


def _svg(drawing: Drawing) -> str | None:
    """A figure, drawn once; None if it shows nothing."""
    key = blake2b(pickle.dumps((drawing.stem, drawing.draw))).digest()
    if key not in _FIGURES:
        _set_timer()
        svg = drawing.files(["svg"]).get("svg")
        _FIGURES[key] = None if svg is None else svg.decode()
    return _FIGURES[key]


def _stamp(folder: Path) -> int:
    """When the results were last written; of a training, how many there are."""
    index = folder / INDEX
    return index.stat().st_mtime_ns if index.is_file() else len(steps_of_run(folder))


def _summary(folder: Path) -> dict:
    study = _study(folder)
    return {
        "models": list(study.models),
        "images": study.header.get("number of images"),
        "effort": study.header.get("effort", ""),
        "lines": [
            {
                "label": line.label,
                "cells": dict(line.cells),
                "better": line.better,
                "reason": line.reason,
            }
            for line in study.glance()
        ],
    }


def _export(folder: Path, name: str) -> str:
    return {"study.md": markdown_of, "results.json": json_of}[name](_study(folder))
