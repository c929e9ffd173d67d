"""Overview: several quantities of each block, on one axis of depth."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from visprism.drawing.depth import kinds_key
from visprism.drawing.registry import draw_on
from visprism.drawing.style import FAINT, model_axes, paper_style, shared_axis
from visprism.drawing.text import caption, set_titles
from visprism.table.result import Result

_WIDTH, _HEIGHT, _KEY = 2.75, 1.15, 0.45  # inches


def overview(results: Mapping[str, Sequence[Result]]) -> Figure | None:
    """Several results of each model above each other, models side by side.

    Args:
        results: of each model, by its name.

    Returns:
        None where there are fewer than two quantities.
    """
    results = {name: of_model for name, of_model in results.items() if of_model}
    kinds = dict.fromkeys(type(r) for of_model in results.values() for r in of_model)
    rows = [
        ({n: r for n, rs in results.items() for r in rs if type(r) is kind}, kind, *figure)
        for kind in kinds
        for figure in kind.section.overview.items()
    ]
    if len(rows) < 2:
        return None
    sources = [rs[0].provenance.sentence() for rs in results.values()]
    size = _WIDTH * len(results), _HEIGHT * len(rows) + _KEY
    with paper_style():
        figure = Figure(size, layout=ConstrainedLayoutEngine(wspace=0.04, hspace=0.03))
        grid = figure.subplots(
            len(rows), len(results), sharex=True, sharey="row", squeeze=False
        )
        for i, (drawable, kind, label, options) in enumerate(rows):
            for j, name in enumerate(results):
                ax = grid[i, j]
                ax.set_gid(model_axes(name))
                if not j:
                    ax.yaxis.set_gid(shared_axis(name))
                if name in drawable:
                    draw_on(drawable[name], ax, **options)
                    ax.tick_params(labelleft=name == next(n for n in results if n in drawable))
                else:
                    _empty(
                        ax, "no attention" if "attention" in kind.identifier else "not measured"
                    )
                ax.set_ylabel("" if j else label, fontsize=7)
                ax.set_xlabel("Normalized depth" if i == len(rows) - 1 else "")
        set_titles(grid[0], list(results), width=0.8 * _WIDTH)
        figure.align_ylabels(grid[:, 0])
        kinds_key(figure, [ax for ax in grid.ravel() if ax.get_legend_handles_labels()[1]])
        figure.set_label(caption(sources, list(results)))
    return figure


def _empty(ax: Axes, reason: str) -> None:
    ax.text(0.5, 0.5, reason, transform=ax.transAxes, ha="center", fontsize=7, color=FAINT)
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0, labelleft=False)
