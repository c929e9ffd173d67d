"""Figure of `FrequencyRobustness`: accuracy drop against frequency (fig. 2b of the paper)."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from visprism.figures.depth import from_zero
from visprism.figures.registry import figure
from visprism.figures.style import KIND_COLOURS, tip
from visprism.results.perturbations import FrequencyRobustness


@figure(width=2.6, height=2.2)
def _(result: FrequencyRobustness, ax: Axes) -> Axes:
    """What noise of each band costs, with its 95 % interval."""
    colour = KIND_COLOURS["conv"]
    margin = 1.96 * np.nan_to_num(result.drop_error)
    ax.fill_between(
        result.frequency,
        result.drop - margin,
        result.drop + margin,
        color=colour,
        alpha=0.18,
        linewidth=0,
    )
    ax.plot(result.frequency, result.drop, color=colour, linewidth=1.1)
    for frequency, drop, rms in zip(result.frequency, result.drop, result.rms, strict=True):
        ax.plot(
            frequency,
            drop,
            marker="o",
            markersize=3.4,
            color=colour,
            gid=tip(f"{frequency:.2f}π · drop {drop:.1%} · RMS {rms:.3f}"),
        )
    ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=None))
    ax.set(xlim=(0, 1), xlabel="Frequency of the noise (π rad/pixel)", ylabel="Accuracy drop")
    from_zero(ax)
    return ax
