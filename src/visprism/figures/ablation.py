"""Figures of `Ablations`: what each block is worth (fig. 10 and 12a of the paper)."""

from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from visprism.figures.depth import kinds_key, points, stages
from visprism.figures.registry import figure
from visprism.figures.style import FAINT, INK, colour_of, tip
from visprism.results.ablation import Ablations, JointAblations
from visprism.results.attention import AttentionStatistics

LABELS = {"drop": "Accuracy drop", "nll_rise": "Rise of NLL (nats)"}
_ATTENTION = {"nmi": "Mutual information of attention", "distance": "Attention distance (px)"}


@figure(width=3.0, height=2.4, key=kinds_key, key_height=0.3)
def _(
    result: Ablations,
    ax: Axes,
    *,
    quantity: Literal["drop", "nll_rise"] = "drop",
    attention: AttentionStatistics | None = None,
    beside: Literal["nmi", "distance"] = "nmi",
) -> Axes:
    """The loss without each block against its depth, stages marked; heads as small rings.

    With `attention` the means of its blocks stand on a second axis, over the same depth.
    """
    value, error = getattr(result, quantity), getattr(result, f"{quantity}_error")
    single = np.isin(result.removed, ["block", "convolution"])
    heads = np.char.startswith(result.removed, "head")
    ax.axhline(0, color=FAINT, linewidth=0.6)
    if single.any():
        rows = result.select(single)
        points(ax, rows, value[single], error[single])
        stages(ax, rows)
    for i in np.flatnonzero(heads):
        ax.plot(
            result.depth[i],
            value[i],
            marker="o",
            markersize=2.2,
            markerfacecolor="none",
            markeredgecolor=colour_of("attention"),
            markeredgewidth=0.5,
            gid=tip(f"{result.block[i]} · {result.removed[i]} · {value[i]:.3g}"),
        )
    if quantity == "drop":
        ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=None))
    ax.set(xlim=(-0.02, 1.02), xlabel="Normalised depth", ylabel=LABELS[quantity])
    if attention is not None:
        _beside(ax, attention, beside)
    return ax


@figure(width=2.5, height=2.2)
def _(result: JointAblations, ax: Axes) -> Axes:
    """The loss without several blocks, mean and range over draws; dashed, one by one in sum."""
    ax.axhline(0, color=FAINT, linewidth=0.6)
    ax.axhline(result.whole_accuracy, color=FAINT, linewidth=0.8, linestyle=(0, (1, 1.5)))
    ax.plot(
        result.number,
        result.drop_apart,
        color=FAINT,
        linewidth=1.0,
        linestyle=(0, (4, 2)),
        label="one by one, in sum",
    )
    ax.vlines(result.number, result.drop_least, result.drop_most, color=INK, linewidth=0.9)
    ax.plot(result.number, result.drop, color=INK, linewidth=1.0, label="at once")
    for number, draws, drop in zip(result.number, result.draws, result.drop, strict=True):
        ax.plot(
            number,
            drop,
            marker="o",
            markersize=3.6,
            color=INK,
            gid=tip(f"{number} blocks · {draws} draws · {drop:.1%}"),
        )
    ax.set_xticks(result.number)
    ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=None))
    ax.set(xlabel="Blocks taken out (dotted: all accuracy)", ylabel=LABELS["drop"])
    ax.legend(fontsize=6, handlelength=1.8)
    return ax


def _beside(ax: Axes, attention: AttentionStatistics, quantity: str) -> None:
    values = getattr(attention, quantity)
    names = list(dict.fromkeys(attention.block.tolist()))
    rows = [attention.block == name for name in names]
    other = ax.twinx()
    other.plot(
        [attention.depth[r][0] for r in rows],
        [values[r].mean() for r in rows],
        color=INK,
        linewidth=0.9,
        linestyle=(0, (1, 1.2)),
        label="_attention",
    )
    other.spines["right"].set_visible(True)
    other.set_ylabel(f"{_ATTENTION[quantity]} (dotted)")
    other.set_ylim(bottom=0)
