"""Figure of a `SpectralDensity`: how many eigenvalues are where, on a logarithmic scale."""

import numpy as np
from matplotlib.axes import Axes

from visprism.figures.registry import figure
from visprism.figures.style import FAINT, KIND_COLOURS
from visprism.measure.loss.curvature import SpectralDensity


@figure(width=3.0, height=2.1, share=False)
def _(result: SpectralDensity, ax: Axes) -> Axes:
    """A stem for each node of each run: the share of eigenvalues that it stands for."""
    runs = int(result.run.max()) + 1
    weight = np.maximum(result.weight / runs, 1e-16)
    ax.vlines(result.node, 1e-16, weight, color=KIND_COLOURS["conv"], linewidth=0.8, alpha=0.7)
    ax.plot(result.node, weight, "o", color=KIND_COLOURS["conv"], markersize=2)
    ax.axvline(0, color=FAINT, linewidth=0.6, zorder=0)
    ax.set(yscale="log", ylim=(max(1e-12, 0.3 / result.parameters / runs), 1.5))
    ax.set(xlabel="Eigenvalue of the Hessian", ylabel="RankSlice of all eigenvalues")
    return ax
