"""Figure of a `SpectralDensity`: fractions of eigenvalues on a logarithmic scale."""

import numpy as np
from matplotlib.axes import Axes

from visprism.figures.registry import figure
from visprism.figures.style import FAINT, KIND_COLORS
from visprism.results.loss import SpectralDensity


@figure(width=3.0, height=2.1, share=False)
def _(result: SpectralDensity, ax: Axes) -> Axes:
    """A stem for each node of each run: the fraction of eigenvalues that it represents."""
    weight = np.maximum(result.weight / result.runs, 1e-16)
    ax.vlines(result.node, 1e-16, weight, color=KIND_COLORS["conv"], linewidth=0.8, alpha=0.7)
    ax.plot(result.node, weight, "o", color=KIND_COLORS["conv"], markersize=2)
    ax.axvline(0, color=FAINT, linewidth=0.6, zorder=0)
    ax.set(yscale="log", ylim=(max(1e-12, 0.3 / result.parameters / result.runs), 1.5))
    infos = SpectralDensity.infos()
    ax.set(xlabel=infos["node"].label, ylabel=infos["weight"].label)
    return ax
