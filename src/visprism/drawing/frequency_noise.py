"""Figures of noise by frequency: `FrequencyRobustness` and `FourierSensitivity`."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from visprism.drawing.depth import from_zero
from visprism.drawing.registry import figure
from visprism.drawing.style import KIND_COLORS, tip
from visprism.results.perturbations import FrequencyRobustness


@figure(width=2.6, height=2.2)
def _(result: FrequencyRobustness, ax: Axes) -> Axes:
    """Accuracy drop under noise of each frequency band, with its 95% interval."""
    color = KIND_COLORS["conv"]
    ax.fill_between(
        result.frequency,
        np.where(np.isfinite(result.drop_low), result.drop_low, result.drop),
        np.where(np.isfinite(result.drop_high), result.drop_high, result.drop),
        color=color,
        alpha=0.18,
        linewidth=0,
    )
    ax.plot(result.frequency, result.drop, color=color, linewidth=1.1)
    for frequency, drop, rms in zip(result.frequency, result.drop, result.rms, strict=True):
        ax.plot(
            frequency,
            drop,
            marker="o",
            markersize=3.4,
            color=color,
            gid=tip(f"{frequency:.2f}π · drop {drop:.1%} · RMS {rms:.3f}"),
        )
    ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=None))
    infos = result.infos()
    ax.set(xlim=(0, 1), xlabel=infos["frequency"].heading, ylabel=infos["drop"].heading)
    from_zero(ax)
    return ax
