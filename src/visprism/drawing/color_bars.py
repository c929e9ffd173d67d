"""Values as colors: color bars, pictures on shared axes, and values on a grid."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colorbar import Colorbar
from matplotlib.colors import Colormap, Normalize
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle
from matplotlib.ticker import PercentFormatter

from visprism.drawing.style import INK, SIMILARITY, tip

UNIT = Normalize(0, 1)  # the scale of fractions and of similarities


def color_bar(
    figure: Figure | Axes,
    axes: Sequence[Axes],
    label: str = "",
    *,
    scale: Normalize = UNIT,
    colors: Colormap | str = SIMILARITY,
    mappable: ScalarMappable | None = None,
    aspect: int = 24,
    pad: float = 0.02,
    **options: Any,
) -> Colorbar:
    """A color bar at the side of the axes, without a frame."""
    mappable = mappable or ScalarMappable(scale, colors)
    whole: Any = axes[0].get_figure() if isinstance(figure, Axes) else figure
    bar = whole.colorbar(
        mappable,
        ax=list(axes),
        label=label,
        aspect=aspect,
        pad=pad,
        panchor=False,  # the axes stay in the middle of their room
        **options,
    )
    bar.outline.set_visible(False)
    return bar


def error_rate_bar(figure: Figure | Axes, axes: Sequence[Axes]) -> None:
    """The color bar of an error rate from 0 to 1."""
    color_bar(figure, axes, "Error rate", format=PercentFormatter(1, decimals=0))


def on_grid(
    x: np.ndarray, y: np.ndarray, values: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sorted columns and rows, and the value at each place of them; NaN where there is none."""
    columns, rows = np.unique(x), np.unique(y)
    grid = np.full((len(rows), len(columns)), np.nan)
    grid[np.searchsorted(rows, y), np.searchsorted(columns, x)] = values
    return columns, rows, grid


def picture(
    ax: Axes,
    image: np.ndarray,
    left: float,
    top: float = 0.0,
    *,
    width: float = 1.0,
    about: str = "",
    **scale: Any,
) -> AxesImage:
    """An image of height 1 on shared axes, with a tooltip; its pixels stay sharp."""
    extent = (left, left + width, top + 1, top)
    scale.setdefault("interpolation", "nearest")
    drawn = ax.imshow(image, extent=extent, **scale)
    if about:
        drawn.set_gid(tip(about))
    return drawn


def caption(
    ax: Axes,
    text: str,
    place: tuple[float, float],
    *,
    down: int | float = 2,
    fontsize: int | float | str = 6,
    color: str = INK,
) -> None:
    """A text under a point, `down` typographic points lower."""
    ax.annotate(
        text,
        place,
        xytext=(0, -down),
        textcoords="offset points",
        ha="center",
        va="top",
        fontsize=fontsize,
        color=color,
    )


def side_by_side(
    ax: Axes,
    pictures: Mapping[str, np.ndarray],
    describe: Callable[[str, AxesImage], str] = lambda name, _: name,
    *,
    gap: float = 0.08,
    fontsize: float | str = "small",
    **scale: Any,
) -> None:
    """Pictures of height 1 from left to right, with texts below, their names by default."""
    left = 0.0
    for name, image in pictures.items():
        width = image.shape[1] / image.shape[0]
        drawn = picture(ax, image, left, width=width, about=name, **scale)
        caption(ax, describe(name, drawn), (left + width / 2, 1.0), fontsize=fontsize)
        left += width * (1 + gap)
    ax.set(xlim=(0, max(left, 1e-9)), ylim=(1, 0))
    ax.axis("off")


def framed(ax: Axes, left: float, top: float, width: float, height: float, text: str) -> None:
    """A thin frame around an image, with `text` as its tooltip."""
    frame = Rectangle((left, top), width, height, fill=False, edgecolor=INK, linewidth=0.3)
    frame.set_gid(tip(text))
    ax.add_patch(frame)
