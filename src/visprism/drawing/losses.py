"""The scale of color and height for losses."""

import matplotlib as mpl
import numpy as np
from matplotlib.colors import ListedColormap, SymLogNorm

from visprism.drawing.style import SIMILARITY

CHANCE_POSITION = 0.75  # position of log(classes) on the scale
DECADES = 2  # above it; larger losses have the color of the end

_BELOW, _ABOVE = 192, 64  # colors, in proportion to the scale

LOSSES = ListedColormap(
    np.concatenate(
        [
            SIMILARITY(np.linspace(0, 1, _BELOW)),
            mpl.colormaps["Grays"](np.linspace(0.2, 0.75, _ABOVE)),
        ]
    ),
    name="losses",
).with_extremes(bad="white")


def loss_scale(classes: int) -> SymLogNorm:
    """Linear from 0 to log(classes), which becomes 0.75; logarithmic beyond, up to 1."""
    chance = float(np.log(max(2, classes)))
    linear = CHANCE_POSITION / (1 - CHANCE_POSITION) * DECADES * (1 - 1 / 10)
    largest = chance * 10**DECADES
    return SymLogNorm(chance, linscale=linear, vmin=0, vmax=largest, base=10, clip=True)
