"""The figures of a report: models side by side, each drawn once, several at a time."""

import ctypes
import gc
import multiprocessing
import os
import signal
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from matplotlib.figure import Figure

from visprism.core.interruption import check_interruption
from visprism.core.run import Progress
from visprism.drawing.panel import panel
from visprism.drawing.save import render_formats
from visprism.report.content import Content, SectionContent
from visprism.report.overview import overview

T = TypeVar("T")

OVERVIEW = "overview"
_FEWEST = 6  # figures of a process, which takes some time to start
_PR_SET_PDEATHSIG = 1  # of Linux: the signal that a process gets when its parent ends
_LONGEST = 300  # characters of what is said of a figure that cannot be drawn
_MOST = 4  # processes; each holds a figure and its files in memory


@dataclass(frozen=True)
class Drawing:
    """A figure of a report, what its files are called, and the section that it belongs to."""

    stem: str
    anchor: str
    label: str  # for screen readers
    draw: Callable[[], Figure | None]  # None: there is nothing to show
    first: bool = True  # whether it is the main figure of its section

    def files(self, formats: Sequence[str]) -> dict[str, bytes]:
        """The figure in each format; empty if there is nothing to show.

        One that cannot be drawn is the sentence that says so: it costs no other.
        """
        try:
            figure = self.draw()
            return {} if figure is None else render_formats(figure, formats)
        except (Exception, SystemExit) as error:  # of a plug-in, or of changed numbers
            return self.sentence(f"{type(error).__name__}: {error}", formats)

    def sentence(self, reason: str, formats: Sequence[str]) -> dict[str, bytes]:
        """A figure that says why this one is not drawn, in each format."""
        return render_formats(_sentence(self.label, reason), formats)


def _sentence(label: str, reason: str) -> Figure:
    figure = Figure(figsize=(6.9, 0.6))
    text = f"{label}: not drawn. {reason}"
    figure.text(0, 0.5, textwrap.fill(text[:_LONGEST], 95), fontsize=8, va="center")
    return figure


def drawings(content: Content) -> list[Drawing]:
    """Every figure of a report, not yet drawn."""
    return [
        Drawing(
            OVERVIEW,
            OVERVIEW,
            "Quantities of each block against depth",
            partial(overview, content.results()),
        ),
        *(drawing for part in content.parts for drawing in _drawings_of(part)),
    ]


def _drawings_of(part: SectionContent) -> Iterator[Drawing]:
    for place, (ending, options) in enumerate(part.section.figures.items()):
        for suffix, results in part.panels.items():
            shown = {n: r for n, r in results.items() if r.has_figure(**options)}
            if shown:
                yield Drawing(
                    "-".join(filter(None, (part.anchor, ending))) + suffix,
                    part.anchor,
                    f"{part.section.title}: {', '.join(shown)}",
                    partial(panel, shown, **options),
                    first=not place,
                )


def rendered(
    content: Content,
    formats: Sequence[str],
    *,
    processes: int | None = None,
    progress: Progress | None = None,
) -> Iterator[tuple[Drawing, Mapping[str, bytes]]]:
    """Every figure of a report in these formats, in order; one that shows nothing is left out.

    On Linux as many processes as there are cores draw at once, at most 4. The bytes do not
    depend on their number.

    Args:
        content: what the report shows.
        formats: "svg", "png", "pdf".
        processes: that draw; None: as many as pay; 1: this one.
        progress: shows how many are drawn.
    """
    todo = drawings(content)
    number = _processes(len(todo)) if processes is None else processes
    files = (d.files(formats) for d in todo) if number == 1 else _shared(todo, formats, number)
    tracked = progress(todo, "figures") if progress else todo
    for drawing, by_format in zip(tracked, files, strict=True):
        check_interruption()
        if by_format:
            yield drawing, by_format


def _processes(figures: int) -> int:
    if sys.platform != "linux":  # elsewhere a fork is unsafe or missing
        return 1
    cores = len(os.sched_getaffinity(0))
    return max(1, min(cores, _MOST, figures // _FEWEST))


def _shared(
    todo: Sequence[Drawing], formats: Sequence[str], processes: int
) -> Iterator[dict[str, bytes]]:
    """The files of each figure; a process that ends costs the figure that it was drawing."""
    context, done = multiprocessing.get_context("fork"), 0
    while done < len(todo):
        pool = ProcessPoolExecutor(processes, context, initializer=_begin)
        try:
            for files in _submitted(pool, partial(Drawing.files, formats=formats), todo[done:]):
                yield files
                done += 1
        except BrokenProcessPool:  # the system ended one, perhaps for lack of memory
            if processes == 1:
                yield todo[done].sentence("its process was ended", formats)
                done += 1
            processes = 1  # which one it was is known if they draw one after another
        except (OSError, RuntimeError):  # of the pool: no process or thread can be started
            for process in pool._processes.values():
                process.kill()
            yield from (drawing.files(formats) for drawing in todo[done:])
            return
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _submitted(
    pool: ProcessPoolExecutor, function: Callable[[Drawing], T], todo: Sequence[Drawing]
) -> Iterator[T]:
    with warnings.catch_warnings():
        # A warning of Python 3.12, about a fork with other threads; the processes start none.
        warnings.filterwarnings("ignore", "This process .* is multi-threaded")
        return pool.map(function, todo)


def _begin() -> None:
    """Begin a process that draws: it ends when its parent does, however that ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # What a process inherits stays: to search it for garbage takes longer than a figure.
    gc.freeze()
