"""Figure of a `Tally`: the mean change across a block, by kind of block."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from visprism.figures.registry import figure
from visprism.figures.style import FAINT, colour_of, marker_of, tip
from visprism.measure.features import Tally

FRACTIONS = {"variance"}  # quantities whose change is a fraction of what was before


@figure(width=2.5, height=2.0)
def _(result: Tally, ax: Axes) -> Axes:
    """Mean change and its 95 % interval over blocks; below, how many blocks lower it."""
    ax.axhline(0, color=FAINT, linewidth=0.6, zorder=1)
    for i, kind in enumerate(result.kind.tolist()):
        below, above = result.mean[i] - result.low[i], result.high[i] - result.mean[i]
        ax.errorbar(
            i,
            result.mean[i],
            yerr=np.array([[below], [above]]),
            color=colour_of(kind),
            marker=marker_of(kind),
            markersize=5,
            elinewidth=1.4,
            capsize=2.5,
            zorder=3,
            label=kind,
            gid=tip(f"{kind} · {result.low[i]:+.3g} to {result.high[i]:+.3g}"),
        )
    if not len(result):
        ax.text(0.5, 0.5, "no block counted", transform=ax.transAxes, ha="center", color=FAINT)
    labels = [
        f"{kind}\n{falls}/{blocks} fall"
        for kind, falls, blocks in zip(result.kind, result.falls, result.blocks, strict=True)
    ]
    ax.set_xticks(range(len(result)), labels)
    ax.tick_params(axis="x", length=0)
    if result.quantity in FRACTIONS:
        ax.yaxis.set_major_formatter(PercentFormatter(1))
    ax.set(xlim=(-0.6, max(len(result), 1) - 0.4), ylabel=f"Mean change of\n{result.quantity}")
    return ax
