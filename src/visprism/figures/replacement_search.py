"""Figures of `ReplacementSearch`: accuracy against the number of MSA blocks (fig. 11 of the paper)."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, PercentFormatter

from visprism.figures.registry import figure
from visprism.figures.style import FAINT, STRIP, colour_of, tip
from visprism.harmonize import ReplacementSearch


@figure(width=3.2, height=2.6)
def _(result: ReplacementSearch, ax: Axes) -> Axes:
    """Means with standard errors, single trainings as small points; what was not kept hollow.

    A line joins the candidates that were kept, a dotted one leads to those that were not.
    """
    msa = colour_of("attention")
    kept: list[tuple[float, float]] = []
    for each in result.candidates():
        x, mean = float(each.msas[0]), float(each.accuracy.mean())
        error = float(each.accuracy.std(ddof=1) / len(each) ** 0.5)
        stays = bool(each.kept[0])
        colour = colour_of("conv") if each.candidate[0] == 0 else msa
        if kept:
            before = np.array([kept[-1], (x, mean)])
            style = "-" if stays else (0, (1, 1.5))
            ax.plot(*before.T, color=msa if stays else FAINT, linewidth=0.9, linestyle=style)
        ax.plot([x] * len(each), each.accuracy, ".", color=STRIP, markersize=2.5)
        what = each.added[0] or "the CNN itself"
        ax.errorbar(
            x,
            mean,
            yerr=error,
            marker="o",
            markersize=4,
            markerfacecolor=colour if stays else "white",
            color=colour,
            elinewidth=0.8,
            capsize=1.5,
            gid=tip(f"{what} · {mean:.2%} ± {error:.2%}"),
        )
        if each.added[0]:
            ax.annotate(
                str(each.added[0]),
                (x, mean),
                xytext=(5, 3 if stays else -3),
                textcoords="offset points",
                va="bottom" if stays else "top",
                fontsize="x-small",
                color=colour if stays else FAINT,
            )
        if stays:
            kept.append((x, mean))
    ax.margins(x=0.22)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=None))
    ax.set(xlabel="Number of MSA blocks", ylabel="Accuracy in validation")
    return ax
