"""The figure of changes by kind of block."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from visprism.drawing.registry import figure
from visprism.drawing.style import FAINT, INK, color_of, marker_of, tip
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
from visprism.table.result import Result

# Labels that distinguish the quantities of one summary, below their points.
SHORT = {
    TO_MEAN.id: "to the mean",
    TO_LOWEST.id: "to the lowest",
    GAIN_TO_MEAN.id: "to the mean",
    GAIN_TO_LOWEST.id: "to the lowest",
    VARIANCE.id: "variance",
    SCALE_FREE.id: "/ mean square",
}
_WIDTH = 0.62  # of the part of an axis that one kind takes


@figure(width=3.2, height=2.7)
def _(result: KindSummary, ax: Axes) -> Axes:
    """Mean change and its 95% interval over images, by kind and quantity, with the counts."""
    counts = [
        f"{falls}/{blocks} fall, {rises} rise"
        for falls, rises, blocks in zip(result.falls, result.rises, result.blocks, strict=True)
    ]
    return _intervals(ax, result, counts)


def _intervals(ax: Axes, result: Result, counts: list[str]) -> Axes:
    """A point with its interval for each row; rows of one kind stand side by side."""
    columns = result.columns()
    rows = range(len(result))
    kinds = list(dict.fromkeys(columns["kind"][rows].tolist()))
    quantities = list(dict.fromkeys(columns["quantity"][rows].tolist()))
    ax.axhline(0, color=FAINT, linewidth=0.6, zorder=1)
    step = _WIDTH / max(1, len(quantities))
    for i in rows:
        kind, quantity = str(columns["kind"][i]), str(columns["quantity"][i])
        mean, low, high = (
            float(columns[name][i]) for name in ("mean", "mean_low", "mean_high")
        )
        place = quantities.index(quantity)
        x = kinds.index(kind) + step * (place - (len(quantities) - 1) / 2)
        bar = ax.errorbar(
            x,
            mean,
            yerr=np.array([[mean - low], [high - mean]]),
            color=color_of(kind),
            marker=marker_of(kind),
            markersize=5,
            markerfacecolor="white" if place else None,
            elinewidth=1.4,
            capsize=2.5,
            zorder=3,
            label=kind if not place else f"_{kind}",
        )
        number = f"{mean:+.3g} [{low:+.3g}, {high:+.3g}]"
        text = f"{kind} · {CHANGES[quantity].label} · {number} · {counts[i]}"
        bar.lines[0].set_gid(tip(text))
    if not rows:
        ax.text(0.5, 0.5, "no block counted", transform=ax.transAxes, ha="center", color=FAINT)
    first = [i for i in rows if columns["quantity"][i] == quantities[0]]
    ax.set_xticks(
        [kinds.index(columns["kind"][i]) for i in first],
        [f"{columns['kind'][i]}\n{counts[i]}{_mixed(columns, rows, i)}" for i in first],
    )
    ax.tick_params(axis="x", length=0)
    if len(quantities) > 1:
        faces = [INK, *["white"] * (len(quantities) - 1)]
        handles = [
            Line2D([], [], marker="o", linestyle="none", color=INK, markerfacecolor=face)
            for face in faces
        ]
        ax.legend(handles, [SHORT.get(q, q) for q in quantities])
    of_log = " of the log" if VARIANCE.id in quantities else ""
    subject = " of the log amplitude" if TO_MEAN.id in quantities else of_log
    ax.set(xlim=(-0.6, max(len(kinds), 1) - 0.4), ylabel=f"Mean change{subject}")
    return ax


def _mixed(columns: Mapping[str, np.ndarray], rows: Sequence[int], row: int) -> str:
    """A word below a kind whose quantities change in opposite directions."""
    same = [i for i in rows if columns["kind"][i] == columns["kind"][row]]
    up = any(columns["mean_low"][i] > 0 for i in same)
    down = any(columns["mean_high"][i] < 0 for i in same)
    return "\nmixed" if up and down else ""
