"""Figure of `ShapeBias`: shape against texture for each category (fig. 4 of Geirhos et al.)."""

import numpy as np
from matplotlib.axes import Axes

from visprism.drawing.registry import figure
from visprism.drawing.style import FAINT, INK, KIND_COLORS, tip
from visprism.results.shape_bias import ShapeBias


@figure(width=2.6, height=2.8, share=False)
def _(result: ShapeBias, ax: Axes) -> Axes:
    """Shape bias of each category with its 95% interval, and of all images."""
    place = np.arange(len(result))[::-1]
    ax.axvline(0.5, color=FAINT, linewidth=0.6, linestyle=(0, (4, 3)))
    for row, y in enumerate(place):
        overall = row == len(result) - 1
        color = INK if overall else KIND_COLORS["conv"]
        ax.hlines(y, result.low[row], result.high[row], color=color, linewidth=0.9)
        ax.plot(
            result.bias[row],
            y,
            marker="D" if overall else "o",
            markersize=4,
            color=color,
            gid=tip(
                f"{result.category[row]} · {result.shape_decisions[row]} shape, "
                f"{result.texture_decisions[row]} texture"
            ),
        )
    ax.set_yticks(place, result.category.tolist())
    ax.tick_params(axis="y", length=0)
    ax.set(xlim=(-0.02, 1.02), xlabel="Shape bias (0: texture, 1: shape)")
    return ax
