"""Figure of `Rings`: how the loss increases with the distance from the weights."""

import numpy as np
from matplotlib.axes import Axes

from visprism.figures.registry import figure
from visprism.figures.style import INK, STRIP
from visprism.results.landscape import BATCH_NORM_LABELS, Rings

_STYLES = {"frozen": "-", "reestimated": "--"}


@figure(width=2.6, height=2.2)
def _(result: Rings, ax: Axes) -> Axes:
    """The mean over angles: thin lines for direction pairs, bold for their mean."""
    radii = np.unique(result.radius)
    for treatment in dict.fromkeys(result.batch_norm.tolist()):
        style = _STYLES[treatment]
        pairs = np.array([result.pair_means(treatment, radius) for radius in radii])
        for values in pairs.T:
            ax.plot(radii, values, color=STRIP, linewidth=0.7, linestyle=style, label="_pair")
        label = BATCH_NORM_LABELS[treatment] if result.has_batch_norm else "mean"
        rings = [ring for ring in result.summary() if ring.batch_norm == treatment]
        x, y = [ring.radius for ring in rings], [ring.rise for ring in rings]
        ax.plot(
            x,
            y,
            color=INK,
            linewidth=1.4,
            linestyle=style,
            marker="o",
            markersize=3,
            label=label,
        )
    if result.has_batch_norm:
        ax.legend(fontsize="x-small", frameon=False)
    infos = Rings.infos()
    ax.set(xlabel=infos["radius"].label, ylabel=infos["rise"].heading, xlim=(0, None))
    return ax
