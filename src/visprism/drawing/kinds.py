"""The figure of changes by kind of block."""

from matplotlib.axes import Axes

from visprism.drawing.registry import figure
from visprism.drawing.style import FAINT, color_of, marker_of, named_points
from visprism.estimates.text import text_of
from visprism.table.kinds import (
    CHANGES,
    GAIN_TO_LOWEST,
    GAIN_TO_MEAN,
    SCALE_FREE,
    TO_LOWEST,
    TO_MEAN,
    VARIANCE,
    KindSummary,
)

# What distinguishes the quantities of one summary in the names of rows.
SHORT = {
    TO_MEAN.id: "to the mean",
    TO_LOWEST.id: "to the lowest",
    GAIN_TO_MEAN.id: "to the mean",
    GAIN_TO_LOWEST.id: "to the lowest",
    VARIANCE.id: "variance",
    SCALE_FREE.id: "over mean square",
}


@figure(width=3.2, height=2.4, share=False, share_values=True)
def _(result: KindSummary, ax: Axes) -> Axes:
    """Mean change and its 95% interval over images, by kind and quantity, with the counts."""
    kinds, quantities = result.kind.tolist(), result.quantity.tolist()
    counts = [
        f"{falls}/{blocks} fall, {rises} rise"
        for falls, rises, blocks in zip(result.falls, result.rises, result.blocks, strict=True)
    ]
    rows = list(zip(kinds, quantities, counts, strict=True))
    names = [f"{kind}, {SHORT[quantity]}\n{count}" for kind, quantity, count in rows]
    about = [
        f"{kind} · {CHANGES[quantity].label} · {text_of(number, '+.3g')} · {count}"
        for (kind, quantity, count), number in zip(rows, result.mean, strict=True)
    ]
    ax.axvline(0, color=FAINT, linewidth=0.6)
    if rows:
        colors, markers = map(color_of, kinds), [*map(marker_of, kinds)]
        named_points(ax, names, result.mean, about, [*colors], markers)
    else:
        ax.text(0.5, 0.5, "no block counted", transform=ax.transAxes, ha="center", color=FAINT)
    of_log = " of the log" if VARIANCE.id in quantities else ""
    subject = " of the log amplitude" if TO_MEAN.id in quantities else of_log
    ax.set(xlabel=f"Mean change{subject}")
    return ax
