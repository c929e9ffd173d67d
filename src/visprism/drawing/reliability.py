"""Figures of calibration: `Reliability` (diagram and histogram), `RiskCoverage`."""

from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from visprism.drawing.depth import from_zero
from visprism.drawing.registry import figure
from visprism.drawing.style import FAINT, KIND_COLORS, tip
from visprism.results.calibration import Reliability, RiskCoverage

BAR, GAP, LINE = KIND_COLORS["conv"], KIND_COLORS["attention"], KIND_COLORS["mlp"]


@figure(width=2.3, height=2.2)
def _(
    result: Reliability,
    ax: Axes,
    *,
    quantity: Literal["accuracy", "frequency"] = "accuracy",
) -> Axes:
    """Accuracy by confidence with the gap to the mean confidence, or a confidence histogram.

    A bin without images has no bar.
    """
    width = result.upper - result.lower
    if quantity == "frequency":
        _bars(ax, result, result.frequency, BAR)
        ax.set(ylim=(0, 1), ylabel="Fraction of images")
    else:
        filled = result.select(result.count > 0)
        _bars(ax, filled, filled.accuracy, BAR)
        for i, (confidence, accuracy) in enumerate(
            zip(filled.confidence.tolist(), filled.accuracy.tolist(), strict=True)
        ):
            middle = (filled.lower[i] + filled.upper[i]) / 2
            reach = 0.38 * width[0]
            ax.fill_between(
                [middle - reach, middle + reach],
                accuracy,
                confidence,
                facecolor="none",
                edgecolor=GAP,
                hatch="//////",
                linewidth=0.5,
                label="_gap",
            )
            ax.plot(
                [middle - reach, middle + reach], [confidence] * 2, color=GAP, linewidth=1.2
            )
        ax.plot([0, 1], [0, 1], color=FAINT, linewidth=0.8, linestyle=(0, (3, 2)))
        ax.text(0.03, 1.03, f"ECE {result.ece:.1%}", va="bottom", fontsize="small")
        ax.set(ylim=(0, 1.13), ylabel="Accuracy")  # no bar reaches the text
    ax.set(xlim=(0, 1), xlabel="Confidence")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(PercentFormatter(1, decimals=0))
    return ax


def _bars(ax: Axes, result: Reliability, heights: np.ndarray, color: str) -> None:
    bars = ax.bar(
        result.lower,
        heights,
        width=result.upper - result.lower,
        align="edge",
        color=color,
        edgecolor="white",
        linewidth=0.5,
    )
    for bar, count, height in zip(bars, result.count.tolist(), heights.tolist(), strict=True):
        bar.set_gid(tip(f"{count} images · {height:.1%}"))


@figure(width=2.5, height=2.1)
def _(result: RiskCoverage, ax: Axes) -> Axes:
    """Error rate of the most confident images by coverage."""
    ax.plot(result.coverage, result.risk, color=GAP, linewidth=1.2, gid=tip("error rate"))
    ax.fill_between(result.coverage, result.risk, color=GAP, alpha=0.15, linewidth=0)
    ax.text(0.03, 0.96, f"AURC {result.aurc:.3g}", va="top", fontsize="small",
            transform=ax.transAxes)  # fmt: skip
    ax.set(xlim=(0, 1), xlabel="Coverage", ylabel="Error rate")
    from_zero(ax)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(PercentFormatter(1, decimals=None))
    return ax
