"""Rotatable surfaces: data for the script of a page."""

from functools import singledispatch
from typing import Any

import numpy as np
from matplotlib.colors import to_hex

from visprism.figures.losses import CHANCE_POSITION, LOSSES, LossScale
from visprism.results.base import Result
from visprism.results.landscape import Landscape


@singledispatch
def surface_of(result: Result) -> dict[str, Any] | None:  # noqa: ARG001
    """Heights and colors of a surface, for JSON; None for results that have none.

    ``height`` is a matrix of values between 0 and 1, ``color`` a matrix of the cells between
    them, ``level`` a height that is outlined with a label, ``axes`` the two labels.
    """
    return None


@surface_of.register
def _(result: Landscape) -> dict[str, Any] | None:
    """The NLL over the first plane, on the scale of the figures; None for lines."""
    if len(np.unique(result.b)) == 1:
        return None
    scale = LossScale(result.classes)
    height = np.ma.filled(scale(result.table("nll", int(result.pair[0]))), 1.0)
    cells = (height[1:, 1:] + height[1:, :-1] + height[:-1, 1:] + height[:-1, :-1]) / 4
    return {
        "height": height.round(4).tolist(),
        "color": [[to_hex(LOSSES(z)) for z in row] for row in cells.tolist()],
        "level": {"height": CHANCE_POSITION, "label": f"log {result.classes}"},
        "axes": ["1st direction", "2nd direction"],
    }
