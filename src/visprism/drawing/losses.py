"""The scale of color and height for losses."""

from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.colors import ListedColormap, Normalize

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


class LossScale(Normalize):
    """Linear from 0 to log(classes), which becomes 0.75; logarithmic beyond, up to 1."""

    def __init__(self, classes: int) -> None:
        self.classes = classes
        self.chance = float(np.log(max(2, classes)))
        super().__init__(0, self.chance * 10**DECADES, clip=False)

    def __call__(self, value: Any, clip: bool | None = None) -> Any:
        """Positions on the scale, 0 to 1; values that are not finite are masked."""
        v = np.ma.masked_invalid(np.ma.asarray(value, dtype=float))
        relative = v / self.chance
        above = CHANCE_POSITION + (1 - CHANCE_POSITION) / DECADES * np.ma.log10(
            np.ma.maximum(relative, 1.0)
        )
        return np.ma.clip(np.ma.where(relative <= 1, CHANCE_POSITION * relative, above), 0, 1)

    def inverse(self, value: Any) -> Any:
        """Losses at these positions."""
        y = np.asarray(value, dtype=float)
        above = 10 ** (DECADES * (y - CHANCE_POSITION) / (1 - CHANCE_POSITION))
        return self.chance * np.where(y <= CHANCE_POSITION, y / CHANCE_POSITION, above)

    def ticks(self) -> list[float]:
        """Losses with a tick."""
        return [f * self.chance for f in (0, 0.25, 0.5, 0.75, 1, 10, 100)]

    def labels(self, *, numbers: bool = True) -> list[str]:
        """Tick labels: losses, or multiples of log(K) where models differ in their classes."""
        if numbers:
            return [
                f"{t:.3g}" if t != self.chance else f"log {self.classes} = {t:.3g}"
                for t in self.ticks()
            ]
        return ["0", "¼ log K", "½ log K", "¾ log K", "log K", "10 log K", "100 log K"]
