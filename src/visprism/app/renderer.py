"""Pages and exports of studies, rendered in another process that keeps drawn figures.

Pages come only from the results, never from a page in the folder of a study, which may be of
somebody else.
"""

import asyncio
import multiprocessing
import pickle
import signal
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache, partial
from hashlib import blake2b
from pathlib import Path
from typing import TypeVar

from visprism.app.child_process import end_with_parent
from visprism.core.errors import InputError
from visprism.report.drawings import Drawing, drawings
from visprism.report.page import PageFigures, page_html
from visprism.study.evolve import alarms_of_run, joined
from visprism.study.exports import json_of, markdown_of
from visprism.study.report_content import content_of
from visprism.study.steps import steps_of_run
from visprism.study.store import INDEX
from visprism.study.study import Study

Value = TypeVar("Value")

_MOST_FIGURES = 600  # that the process keeps: about 60 MB
_FIGURES: dict[bytes, str | None] = {}  # of the process that draws


class Renderer:
    """Renders studies one after another in a separate process."""

    def __init__(self, longest: float = 60.0) -> None:
        self._longest = longest  # seconds for a figure, or for what has none
        self._pool: ProcessPoolExecutor | None = None

    async def page(self, folder: Path, *, figures: bool) -> str:
        """The report of the results that a folder has by now, with or without figures."""
        return await self._rendered(partial(_page, folder, figures=figures))

    async def export(self, folder: Path, name: str) -> str:
        """``study.md`` or ``results.json`` of a study."""
        return await self._rendered(partial(_export, folder, name))

    async def summary(self, folder: Path) -> dict:
        """Models, number of images and the lines of a study at a glance."""
        return await self._rendered(partial(_summary, folder, _stamp(folder)))

    async def thumbnail(self, folder: Path) -> str:
        """The first figure of the report, as SVG."""
        return await self._rendered(partial(_thumbnail, folder))

    def close(self) -> None:
        """End the process, also one that draws."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.kill()

    async def _rendered(self, render: Callable[[], Value]) -> Value:
        loop, render = asyncio.get_running_loop(), partial(_in_time, render, self._longest)
        try:
            return await loop.run_in_executor(self._process(), render)
        except BrokenProcessPool:  # it was killed, by the system for its memory perhaps
            self._pool = None
        try:
            return await loop.run_in_executor(self._process(), render)
        except BrokenProcessPool as error:
            self._pool = None
            raise InputError(
                f"results must be shown within {self._longest:g} s, in the memory there is"
            ) from error

    def _process(self) -> ProcessPoolExecutor:
        if self._pool is None:
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(1, context, initializer=end_with_parent)
        return self._pool


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


def _thumbnail(folder: Path) -> str:
    figures = map(_svg, drawings(content_of(_study(folder))))
    return next(filter(None, figures), '<svg xmlns="http://www.w3.org/2000/svg"/>')


def _stamp(folder: Path) -> int:
    """When the results were last written; of a training, how many there are."""
    index = folder / INDEX
    return index.stat().st_mtime_ns if index.is_file() else len(steps_of_run(folder))


@lru_cache(64)
def _summary(folder: Path, _stamp: int) -> dict:
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
