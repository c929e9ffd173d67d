"""Pages and exports of studies, rendered in another process that keeps drawn figures.

Pages come from the results alone, never from a page in the folder of a study, which may be of
somebody else.
"""

import asyncio
import multiprocessing
import os
import pickle
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

_MOST_FIGURES = 600  # that the process keeps: about 60 MB
_MOST_PAGES = 8


class Renderer:
    """Renders studies one after another; a page of unchanged results is rendered once."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None
        self._pages: OrderedDict[Any, str] = OrderedDict()
        self._tasks: dict[Any, asyncio.Future[str]] = {}

    async def page(self, folder: Path, *, figures: bool) -> str:
        """The report of the results that a folder has by now, with or without figures."""
        key = (folder, figures, _version(folder))
        if key not in self._pages:
            self._pages[key] = await self._shared(key, partial(_page, folder, figures=figures))
            while len(self._pages) > _MOST_PAGES:
                self._pages.popitem(last=False)
        return self._pages[key]

    async def export(self, folder: Path, name: str) -> str:
        """``study.md`` or ``results.json`` of a study."""
        return await self._shared((folder, name), partial(_export, folder, name))

    def close(self) -> None:
        """End the process."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    async def _shared(self, key: Any, render: Callable[[], str]) -> str:
        """The text, rendered once for all who wait for the same."""
        if key not in self._tasks:
            self._tasks[key] = asyncio.ensure_future(self._rendered(render))
            self._tasks[key].add_done_callback(lambda _: self._tasks.pop(key, None))
        return await asyncio.shield(self._tasks[key])

    async def _rendered(self, render: Callable[[], str]) -> str:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._process(), render)
        except BrokenProcessPool:  # it was killed, by the system for its memory perhaps
            self._pool = None
            return await loop.run_in_executor(self._process(), render)

    def _process(self) -> ProcessPoolExecutor:
        if self._pool is None:
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(1, context, initializer=_end_with_parent)
        return self._pool


def _end_with_parent() -> None:
    """End this process with the server, also where that is killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _version(folder: Path) -> int:
    from visprism.study.store import INDEX

    try:
        return (folder / INDEX).stat().st_mtime_ns
    except OSError:
        return 0


_FIGURES: OrderedDict[bytes, str | None] = OrderedDict()  # of the process that draws


def _page(folder: Path, *, figures: bool) -> str:
    from visprism.report import PageFigures, drawings, page_html
    from visprism.study import Study
    from visprism.study.report_content import content_of

    content = content_of(Study.load(folder))
    page = PageFigures(content)
    for drawing in drawings(content) if figures else ():
        key = blake2b(pickle.dumps((drawing.stem, drawing.draw))).digest()
        if key not in _FIGURES:
            svg = drawing.files(["svg"]).get("svg")
            _FIGURES[key] = None if svg is None else svg.decode()
        _FIGURES.move_to_end(key)
        markup = _FIGURES[key]
        if markup is not None:
            page.add(drawing, markup)
    while len(_FIGURES) > _MOST_FIGURES:
        _FIGURES.popitem(last=False)
    return page_html(content, page)


def _export(folder: Path, name: str) -> str:
    from visprism.study import Study
    from visprism.study.exports import json_of, markdown_of

    study = Study.load(folder)
    return {"study.md": markdown_of, "results.json": json_of}[name](study)
