"""Color bars: the key of a figure whose colors are values."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colorbar import Colorbar
from matplotlib.colors import Colormap, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from visprism.drawing.style import SIMILARITY

UNIT = Normalize(0, 1)  # the scale of fractions and of similarities


def color_bar(
    figure: Figure,
    axes: Sequence[Axes],
    label: str = "",
    *,
    scale: Normalize = UNIT,
    colors: Colormap | str = SIMILARITY,
    aspect: int = 24,
    pad: float = 0.02,
    **options: Any,
) -> Colorbar:
    """A color bar at the side of the axes, without a frame."""
    mappable = ScalarMappable(scale, colors)
    bar = figure.colorbar(
        mappable, ax=list(axes), label=label, aspect=aspect, pad=pad, **options
    )
    bar.outline.set_visible(False)
    return bar


def error_rate_bar(figure: Figure, axes: Sequence[Axes]) -> None:
    """The color bar of an error rate from 0 to 1."""
    color_bar(figure, axes, "Error rate", format=PercentFormatter(1, decimals=0))
