"""Figures of ablations: accuracy drop of each block, of kinds, and of several blocks together.

As fig. 10 and 12a of Park and Kim (2022).
"""

from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from visprism.analyses.attention.attention import AttentionStatistics
from visprism.drawing.depth import kinds_key, points, stages
from visprism.drawing.registry import figure
from visprism.drawing.style import FAINT, INK, color_of, tip
from visprism.results.ablation import Ablations, JointAblations, KindAblations


@figure(width=3.0, height=2.4, key=kinds_key, key_height=0.3)
def _(
    result: Ablations,
    ax: Axes,
    *,
    quantity: Literal["drop", "nll_rise"] = "drop",
    ablated: Literal["block", "convolution"] = "block",
    attention: AttentionStatistics | None = None,
    beside: Literal["nmi", "distance"] = "nmi",
) -> Axes:
    """Accuracy drop of one experiment against the depth of the block, with its interval.

    Stages are marked; heads, channels and tokens are small rings. Convolutions are drawn where
    no whole block was ablated. With `attention` the mean of a statistic of each attention is
    drawn on a second axis, against the same depth.
    """
    rows = result.experiment(ablated)
    if ablated == "block" and not len(rows):
        rows = result.experiment("convolution")
    part = str(rows.ablated[0]) if len(rows) else ablated
    inside = ~np.isin(result.ablated, ["block", "convolution", "several"])
    inner = result.select(inside & (ablated == "block"))
    ax.axhline(0, color=FAINT, linewidth=0.6)
    if len(rows):
        points(ax, rows, quantity)
        stages(ax, rows)
    elif ablated == "convolution":
        text = "no convolution inside a block\ncan be ablated"
        ax.text(0.5, 0.5, text, transform=ax.transAxes, ha="center", color=FAINT)
    for i in range(len(inner)):
        value = getattr(inner, quantity)[i]
        ax.plot(
            inner.depth[i],
            value,
            marker="o",
            markersize=2.2,
            markerfacecolor="none",
            markeredgecolor=color_of(str(inner.kind[i])),
            markeredgewidth=0.5,
            gid=tip(f"{inner.block[i]} · {inner.ablated[i]} · {value:.3g}"),
        )
    if quantity == "drop":
        ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=None))
    infos = result.infos()
    ax.set(
        xlim=(-0.02, 1.02),
        xlabel=infos["depth"].heading,
        ylabel=f"{infos[quantity].heading}, one {part} ablated",
    )
    if attention is not None:
        _beside(ax, attention, beside)
    return ax


@figure(width=3.4, height=2.2, share=False, share_values=True)
def _(result: KindAblations, ax: Axes) -> Axes:
    """Means by kind and their differences, with 95% intervals over images."""
    ax.axvline(0, color=FAINT, linewidth=0.6)
    places = np.arange(len(result))[::-1]
    for place, ablated, comparison, drop, low, high in zip(
        places, result.ablated.tolist(), result.comparison.tolist(), result.drop,
        result.drop_low, result.drop_high, strict=True,
    ):  # fmt: skip
        ax.errorbar(
            drop,
            place,
            xerr=[[drop - low], [high - drop]],
            color=color_of(comparison) if "minus" not in comparison else INK,
            marker="o",
            markersize=3.4,
            elinewidth=0.8,
            linestyle="none",
            gid=tip(f"{ablated} · {comparison} · {drop:.1%} [{low:.1%}, {high:.1%}]"),
        )
    labels = [
        f"{comparison} ({ablated}s)"
        for ablated, comparison in zip(result.ablated, result.comparison, strict=True)
    ]
    ax.set_yticks(places, labels)
    ax.xaxis.set_major_formatter(PercentFormatter(1, decimals=None))
    ax.set(xlabel=result.infos()["drop"].heading, ylim=(-0.6, len(result) - 0.4))
    return ax


@figure(width=2.7, height=2.2)
def _(result: JointAblations, ax: Axes) -> Axes:
    """Mean and range over draws of the joint drop; dashed, the sum of the single drops."""
    ax.axhline(0, color=FAINT, linewidth=0.6)
    ax.axhline(result.baseline_accuracy, color=FAINT, linewidth=0.8, linestyle=(0, (1, 1.5)))
    infos = result.infos()
    ax.plot(
        result.num_blocks,
        result.sum_of_drops,
        color=FAINT,
        linewidth=1.0,
        linestyle=(0, (4, 2)),
        label=infos["sum_of_drops"].label,
    )
    ax.vlines(result.num_blocks, result.drop_min, result.drop_max, color=INK, linewidth=0.9)
    ax.plot(result.num_blocks, result.drop, color=INK, linewidth=1.0, label="Joint ablation")
    for number, draws, drop in zip(result.num_blocks, result.draws, result.drop, strict=True):
        ax.plot(
            number,
            drop,
            marker="o",
            markersize=3.6,
            color=INK,
            gid=tip(f"{number} blocks · {draws} draws · {drop:.1%}"),
        )
    ax.set_xticks(result.num_blocks)
    ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=None))
    ax.set(xlabel="Blocks ablated (dotted: baseline accuracy)", ylabel=infos["drop"].heading)
    ax.legend(fontsize=6, handlelength=1.8)
    return ax


def _beside(ax: Axes, attention: AttentionStatistics, quantity: str) -> None:
    """The mean over heads of a statistic of each attention, on a second axis."""
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
    other.set_ylabel(f"{attention.infos()[quantity].heading} (dotted)")
    other.set_ylim(bottom=0)
