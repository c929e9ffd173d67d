"""Surfaces that a reader can turn: what a page's script needs to draw one."""

import json

import numpy as np
from matplotlib.colors import to_hex

from visprism.figures.losses import CHANCE_POSITION, LOSSES, LossScale
from visprism.measure.loss.landscape import Landscape
from visprism.results.base import Result


def surface(result: Result) -> str:
    """The NLL over the first plane of a `Landscape`, as JSON; empty if it has only lines.

    Heights and colours are places on the scale of the still figures.
    """
    if not isinstance(result, Landscape) or len(np.unique(result.b)) == 1:
        return ""
    scale = LossScale(result.classes)
    height = np.ma.filled(scale(result.table("nll", int(result.pair[0]))), 1.0)
    cells = (height[1:, 1:] + height[1:, :-1] + height[:-1, 1:] + height[:-1, :-1]) / 4
    return json.dumps(
        {
            "height": height.round(4).tolist(),
            "colour": [[to_hex(LOSSES(z)) for z in row] for row in cells.tolist()],
            "chance": {"height": CHANCE_POSITION, "label": f"log {result.classes}"},
            "axes": ["1st direction", "2nd direction"],
        }
    )
