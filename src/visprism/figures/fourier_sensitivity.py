"""Figure of `FourierSensitivity`: a heat map of the error (fig. 3 of Yin et al. 2019)."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from visprism.figures.registry import figure
from visprism.figures.style import SIMILARITY
from visprism.results.perturbations import FourierSensitivity

_SCALE = Normalize(0, 1)


def bar(figure: Figure, axes: Sequence[Axes]) -> None:
    """A colour bar at the side: the share of wrong images from 0 to 1."""
    colours = figure.colorbar(
        ScalarMappable(_SCALE, SIMILARITY),
        ax=list(axes),
        label="Error rate",
        format=PercentFormatter(1, decimals=0),
        aspect=24,
        pad=0.02,
    )
    colours.outline.set_visible(False)


@figure(width=2.5, height=2.4, key=bar, key_width=0.7)
def _(result: FourierSensitivity, ax: Axes) -> Axes:
    """The error under each direction of the Fourier basis; the cross is frequency 0."""
    across = np.unique(result.horizontal)
    step = across[1] - across[0]
    image = np.full((len(across), len(across)), np.nan)
    image[
        np.searchsorted(across, result.vertical), np.searchsorted(across, result.horizontal)
    ] = result.error
    edge = across[-1] + step / 2
    ax.imshow(
        image,
        cmap=SIMILARITY,
        norm=_SCALE,
        extent=(-edge, edge, -edge, edge),
        origin="lower",
        interpolation="nearest",
    )
    ax.plot(0, 0, marker="+", markersize=5, markeredgewidth=0.7, color="white")
    ax.set(xlabel="Horizontal frequency (cycles)", ylabel="Vertical frequency (cycles)")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(5, integer=True))
    for side in ("top", "right", "bottom", "left"):
        ax.spines[side].set_visible(False)
    return ax
