"""Figures of `DistributionShift`: a bar for each stored set."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from visprism.drawing.registry import figure
from visprism.drawing.style import INK, KIND_COLORS, tip
from visprism.results.distribution_shift import DistributionShift

_MOST = 40  # labels that fit


@figure(width=3.2, height=2.4, share=False)
def _(result: DistributionShift, ax: Axes) -> Axes:
    """Accuracy on each set with its interval, and a mark for that on the data."""
    rows = np.arange(len(result))
    error = [result.accuracy - result.accuracy_low, result.accuracy_high - result.accuracy]
    bars = ax.barh(rows, result.accuracy, color=KIND_COLORS["conv"], height=0.7)
    for bar, name, value in zip(bars, result.shift, result.accuracy, strict=True):
        bar.set_gid(tip(f"{name} · {value:.1%}"))
    ax.errorbar(result.accuracy, rows, xerr=error, fmt="none", ecolor=INK, elinewidth=0.7)
    ax.plot(result.reference, rows, "|", color=INK, markersize=7, label="data, same classes")
    labels = [name.partition("?")[2] or name.partition(":")[0] for name in result.shift]
    ax.set_yticks(rows, labels if len(rows) <= _MOST else [""] * len(rows))
    ax.invert_yaxis()
    ax.set(xlabel=DistributionShift.infos()["accuracy"].heading, xlim=(0, 1))
    ax.xaxis.set_major_formatter(PercentFormatter(1, decimals=None))
    ax.legend(fontsize="small")
    return ax
