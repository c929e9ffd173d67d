"""Panels: one or several models side by side, with what is needed to read them."""

from collections.abc import Sequence
from math import ceil
from typing import Any

from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from visprism.core.errors import InputError
from visprism.figures.registry import frame_of, plot
from visprism.figures.style import FAINT, paper_style
from visprism.figures.text import caption, title
from visprism.results.base import Result

_SMALL = 5.5  # points; the protocol


def panel(
    results: Sequence[Result],
    *,
    names: Sequence[str] | None = None,
    **options: Any,  # noqa: ANN401 (of the figure)
) -> Figure:
    """A figure of results of one type, one model each, that needs no editing.

    The models share one key, and their vertical axis where it means the same for all; each has
    its name for a title, and the protocol stands below in small type. No global figure is
    opened.

    Args:
        results: one per model.
        names: titles; by default the models' names in the provenance.
        **options: of the figure, as `plot` takes them.

    Raises:
        InputError: if there is no result, types differ, or names and results differ in number.
    """
    types = sorted({type(result).__name__ for result in results})
    if len(types) != 1:
        raise InputError(
            f"a panel shows results of one type, got {', '.join(types) or 'none'}; "
            "make one panel for each type"
        )
    names = [result.provenance.model for result in results] if names is None else names
    if len(names) != len(results):
        raise InputError(
            f"got {len(names)} names for {len(results)} results; give one for each result"
        )
    frame = frame_of(results[0])
    rows = ceil(len(results) / frame.across)
    columns = ceil(len(results) / rows)  # rows of like length
    width = frame.width * columns + frame.key_width
    sentences = [result.provenance.sentence() for result in results]
    protocol = caption(sentences, names, width=width - 0.2, size=_SMALL)
    lines = protocol.count("\n") + 1
    height = rows * (frame.height + 0.2) + frame.key_height + lines * _SMALL * 1.3 / 72

    with paper_style():
        figure = Figure(
            (width, height), layout=ConstrainedLayoutEngine(wspace=0.04, hspace=0.06)
        )
        grid = figure.subplots(rows, columns, sharey=frame.share, squeeze=False).ravel()
        axes = list(grid[: len(results)])
        for unused in grid[len(results) :]:
            unused.remove()
        for i, (ax, result, name) in enumerate(zip(axes, results, names, strict=True)):
            plot(result, ax, **options)
            size = ax.title.get_size()
            ax.set_title(title(name, width=0.8 * frame.width, size=size), parse_math=False)
            if i % columns:
                ax.set_ylabel("")
            if i + columns < len(results):
                ax.set_xlabel("")
        frame.key(figure, axes)
        figure.supxlabel(
            protocol, x=0.01, ha="left", fontsize=_SMALL, color=FAINT, parse_math=False
        )
    return figure
