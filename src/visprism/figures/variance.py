"""Figure of the feature-map variance: `Variances` (fig. 9 of the paper)."""

from typing import Literal

from matplotlib.axes import Axes
from matplotlib.ticker import LogFormatter

from visprism.figures.depth import against_depth, kinds_key
from visprism.figures.registry import figure
from visprism.results.variance import Variances


class PlainLogFormatter(LogFormatter):
    """Writes 0.3, 1, 3 on a logarithmic axis, not powers of ten."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        """The label of a tick; empty where labels would run into each other."""
        return f"{x:g}" if super().__call__(x, pos) else ""


@figure(width=2.75, height=2.0, key=kinds_key, key_height=0.25)
def _(
    result: Variances, ax: Axes, *, quantity: Literal["variance", "relative"] = "variance"
) -> Axes:
    """Variance over positions against depth, absolute or scale-free.

    The axis is logarithmic: what a block does is a factor, and models differ by orders of
    magnitude. Where no feature map varies at all it is linear.
    """
    against_depth(ax, result, quantity)
    if (getattr(result, quantity) > 0).any():
        ax.set_yscale("log")
        ax.yaxis.set_major_formatter(PlainLogFormatter())
        ax.yaxis.set_minor_formatter(PlainLogFormatter(minor_thresholds=(2.5, 0.5)))
    ax.set_ylabel(result.infos()[quantity].heading)
    return ax
