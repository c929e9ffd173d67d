"""Panels: one or several models side by side, with titles, key and provenance."""

from collections.abc import Callable, Mapping, Sequence
from math import ceil
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from visprism.core.errors import InputError
from visprism.drawing.registry import draw_on, frame_of, plot
from visprism.drawing.style import model_axes, paper_style, shared_axis
from visprism.drawing.text import caption, set_titles
from visprism.table.result import Result

MakeFigure = Callable[..., Figure]


def panel(
    results: Mapping[str, Result] | Sequence[Result],
    *,
    width: str | None = None,
    **options: Any,
) -> Figure:
    """A figure of results of one type, one model each, for a paper.

    The models share one legend, and their vertical axis where it means the same for all. Each
    has its name as title. Saved files hold the provenance as metadata. No global figure is
    opened.

    Args:
        results: results by the name of the model, which is the title; without names, the
            titles are the models of the provenance.
        width: "column" for 3.3 inches and "page" for 6.9, as two-column venues have them;
            None for what the number of models asks for.
        **options: of the figure, as `plot` takes them; a mapping has one for each name.
    """
    return _side_by_side(results, Figure, width, options)[0]


# Dispatch is only on the class, which has no type arguments.
@plot.register(Mapping)  # pyrefly: ignore[bad-singledispatch-register]
def _(
    results: Mapping[str, Result],
    ax: Axes | None = None,
    width: str | None = None,
    **options: Any,
) -> np.ndarray:
    """Models side by side on a new figure; one axes per model."""
    from matplotlib import pyplot  # its figures are global: here only

    if ax is not None:
        raise InputError(
            f"ax must be None for {len(results)} results, got axes. Plot one result on axes."
        )
    return _side_by_side(results, pyplot.figure, width, options)[1]


def _side_by_side(
    results: Mapping[str, Result] | Sequence[Result],
    make_figure: MakeFigure,
    width: str | None,
    options: Mapping[str, Any],
) -> tuple[Figure, np.ndarray]:
    """The figure, and its axes in the order of the results."""
    if isinstance(results, Mapping):
        names = list(results)
        results = list(results.values())
    else:
        names = [result.provenance.model for result in results]
    types = sorted({type(result).__name__ for result in results})
    if len(types) != 1:
        raise InputError(
            f"results must be of one type, got {', '.join(types) or 'none'}. "
            "Make one panel for each type."
        )
    frame = frame_of(results[0])
    most = frame.across if width != "column" else 1
    rows = ceil(len(results) / most)
    columns = ceil(len(results) / rows)  # rows of like length
    scale = frame.scale(columns, width)
    inches = scale * frame.width * columns + frame.key_width
    height = rows * (scale * frame.height + 0.22) + frame.key_height

    with paper_style():
        layout = ConstrainedLayoutEngine(wspace=0.04, hspace=0.06)
        figure = make_figure(figsize=(inches, height), layout=layout)
        grid = figure.subplots(
            rows, columns, sharex=frame.share_values, sharey=frame.share, squeeze=False
        ).ravel()
        axes = grid[: len(results)]
        for unused in grid[len(results) :]:
            unused.remove()
        for i, (ax, result, name) in enumerate(zip(axes, results, names, strict=True)):
            ax.set_gid(model_axes(name))
            if frame.share and not i % columns:
                ax.yaxis.set_gid(shared_axis(name))
            own = {k: v.get(name) if isinstance(v, Mapping) else v for k, v in options.items()}
            draw_on(result, ax, **own)
            if i % columns:
                ax.set_ylabel("")
            if i + columns < len(results):
                ax.set_xlabel("")
        set_titles(axes, names, width=0.8 * scale * frame.width)
        frame.key(figure, list(axes))
        figure.set_label(caption([r.provenance.sentence() for r in results], names))
    return figure, axes
