"""Figure of `Sharpness`: the increase of the loss at a small distance, by rule."""

import numpy as np
from matplotlib.axes import Axes

from visprism.figures.registry import figure
from visprism.figures.style import FAINT, INK
from visprism.results.loss import Sharpness

_NAMES = {"sam": "SAM", "asam": "ASAM", "gaussian": "Gaussian"}


@figure(width=2.4, height=2.0)
def _(result: Sharpness, ax: Axes) -> Axes:
    """A point for each rule with its interval; faint points are mini-batches."""
    labels = []
    for x, (rule, rho, steps, mean, low, high, batches) in enumerate(result.means()):
        if batches:
            rows = (result.rule == rule) & (result.rho == rho) & (result.steps == steps)
            values = result.sharpness[rows]
            ax.plot(np.full(len(values), x), values, ".", color=FAINT, markersize=2)
        error = [[mean - low], [high - mean]] if np.isfinite(low) else None
        ax.errorbar([x], [mean], yerr=error, fmt="o", color=INK, markersize=4, capsize=2)
        labels.append(f"{_NAMES[rule]}\n$\\rho$ = {rho:g}")
    ax.axhline(0, color=FAINT, linewidth=0.6, zorder=0)
    ax.set_xticks(range(len(labels)), labels=labels)
    ax.set(xlim=(-0.6, len(labels) - 0.4), ylabel=Sharpness.infos()["sharpness"].heading)
    return ax
