"""Pages and exports of studies, rendered in another process that keeps drawn figures.

Pages come from the results alone, never from a page in the folder of a study, which may be of
somebody else.
"""

import asyncio
import multiprocessing
import os
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from hashlib import blake2b
from pathlib import Path

_MOST_FIGURES = 600  # that the process keeps: about 60 MB
_FIGURES: dict[bytes, str | None] = {}  # of the process that draws


class Renderer:
    """Renders studies one after another in a separate process."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None

    async def page(self, folder: Path, *, figures: bool) -> str:
        """The report of the results that a folder has by now, with or without figures."""
        return await self._rendered(partial(_page, folder, figures=figures))

    async def export(self, folder: Path, name: str) -> str:
        """``study.md`` or ``results.json`` of a study."""
        return await self._rendered(partial(_export, folder, name))

    def close(self) -> None:
        """End the process."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

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


def _page(folder: Path, *, figures: bool) -> str:
    from visprism.report import PageFigures, drawings, page_html
    from visprism.study import Study
    from visprism.study.report_content import content_of

    content = content_of(Study.load(folder))
    page = PageFigures(content)
    if len(_FIGURES) > _MOST_FIGURES:
        _FIGURES.clear()
    for drawing in drawings(content) if figures else ():
        key = blake2b(pickle.dumps((drawing.stem, drawing.draw))).digest()
        if key not in _FIGURES:
            svg = drawing.files(["svg"]).get("svg")
            _FIGURES[key] = None if svg is None else svg.decode()
        markup = _FIGURES[key]
        if markup is not None:
            page.add(drawing, markup)
    return page_html(content, page)


def _export(folder: Path, name: str) -> str:
    from visprism.study import Study
    from visprism.study.exports import json_of, markdown_of

    return {"study.md": markdown_of, "results.json": json_of}[name](Study.load(folder))
