"""Figures of `AttentionStatistics`: every head against depth (fig. 7 of the ViT paper)."""

from typing import Literal

import numpy as np
from matplotlib.axes import Axes

from visprism.drawing.depth import from_zero
from visprism.drawing.registry import figure
from visprism.drawing.style import FAINT, color_of, tip
from visprism.results.attention import AttentionStatistics


@figure(width=2.75, height=2.0)
def _(
    result: AttentionStatistics,
    ax: Axes,
    *,
    quantity: Literal["distance", "entropy", "nmi", "prefix_share", "redundancy"] = "distance",
) -> Axes:
    """One point per head with its 95% interval, and a line through the means of blocks."""
    values, (low, high) = getattr(result, quantity), result.intervals_of(quantity)
    names = list(dict.fromkeys(result.block.tolist()))
    members = [result.block == name for name in names]
    depths = [result.depth[rows][0] for rows in members]
    means = [values[rows].mean() for rows in members]
    ax.plot(depths, means, color=FAINT, linewidth=0.9, zorder=1, label="_mean of heads")
    lengths = np.stack([values - low, high - values], axis=1)
    for block, head, depth, value, bar in zip(
        result.block, result.head, result.depth, values, lengths, strict=True
    ):
        ax.errorbar(
            depth,
            value,
            yerr=bar[:, None] if np.isfinite(bar).all() else None,
            color=color_of("attention"),
            marker="o",
            markersize=2.8,
            markeredgewidth=0.3,
            markeredgecolor="white",
            elinewidth=0.6,
            linestyle="none",
            alpha=0.8,
            gid=tip(f"{block} · head {head} · {value:.3g}"),
        )
    from_zero(ax)
    ax.set(
        xlim=(-0.02, 1.02), xlabel="Normalized depth", ylabel=result.infos()[quantity].heading
    )
    return ax
