"""Figures of weights: `PatchFilters` and `PositionalSimilarity` as grids of images."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from visprism.drawing.color_bars import color_bar
from visprism.drawing.registry import figure
from visprism.drawing.style import FAINT, INK, tip
from visprism.results.weights import PatchFilters, PositionalSimilarity

_SCALE = Normalize(-1, 1)
_COLORS = "RdBu_r"  # its ends differ in hue for any color vision
_ACROSS, _DOWN = 7, 4  # components, as in the paper
_REFERENCES = 7  # most along a side
_BELOW = 0.36  # of the height of a component, for its share


@figure(width=3.1, height=2.3)
def _(result: PatchFilters, ax: Axes) -> Axes:
    """Principal components as images, row by row; below each, its explained variance.

    RGB images have RGB components; of others the first channel is drawn in gray.
    """
    sides = result.row.max() + 1, result.column.max() + 1
    width = sides[1] / sides[0]  # a picture is 1 high, so that models share axes
    step = 1.12 * width, 1 + _BELOW
    for component in np.unique(result.component):
        rows = result.select(result.component == component)
        weights = rows.value.reshape(-1, *sides)
        rgb = weights if len(weights) == 3 else weights[[0, 0, 0]]
        down, across = divmod(int(component) - 1, _ACROSS)
        left, top = across * step[0], down * step[1]
        ax.imshow(
            _SCALE(np.moveaxis(rgb, 0, -1)),
            extent=(left, left + width, top + 1, top),
            interpolation="nearest",
        )
        share = f"{rows.share[0]:.1%}"
        text = f"component {component} · explained variance {share}"
        _framed(ax, left, top, width, 1.0, text)
        ax.annotate(
            share,
            (left + width / 2, top + 1),
            xytext=(0, -1.5),
            textcoords="offset points",
            ha="center",
            va="top",
            fontsize=5,
            color=FAINT,
        )
    down = max(_DOWN, -(-int(result.component.max()) // _ACROSS))
    ax.set(xlim=(-0.02, _ACROSS * step[0]), ylim=(down * step[1], -0.02))
    ax.axis("off")
    return ax


def cosine_bar(figure: Figure, axes: Sequence[Axes]) -> None:
    """A color bar at the side: the cosine similarity."""
    ticks = [-1, -0.5, 0, 0.5, 1]
    color_bar(
        figure, axes, "Cosine similarity", scale=_SCALE, colors=_COLORS, ticks=ticks, pad=0.01
    )


@figure(width=2.9, height=2.7, key=cosine_bar, key_width=0.6)
def _(result: PositionalSimilarity, ax: Axes) -> Axes:
    """The similarities to each of at most 7x7 positions, drawn at that position."""
    grid = result.other_row.max() + 1, result.other_column.max() + 1
    rows, columns = _spread(result.row), _spread(result.column)
    side = 1 / len(rows), 1 / len(columns)  # all maps together are 1 high and wide
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            pairs = result.select((result.row == row) & (result.column == column))
            left, top = j * side[1], i * side[0]
            width, height = 0.92 * side[1], 0.92 * side[0]
            ax.imshow(
                pairs.cosine.reshape(grid),
                norm=_SCALE,
                cmap=_COLORS,
                extent=(left, left + width, top + height, top),
                interpolation="nearest",
            )
            _framed(ax, left, top, width, height, f"position: row {row}, column {column}")
    ax.set(xlim=(-0.01, 1), ylim=(1, -0.01), aspect=grid[0] / grid[1])
    ax.axis("off")
    return ax


def _spread(places: np.ndarray) -> np.ndarray:
    """At most 7 of the rows, or columns, evenly spaced."""
    distinct = np.unique(places)
    number = min(len(distinct), _REFERENCES)
    return distinct[np.linspace(0, len(distinct) - 1, number).round().astype(int)]


def _framed(ax: Axes, left: float, top: float, width: float, height: float, text: str) -> None:
    """A thin frame around an image, with `text` as its tooltip."""
    frame = Rectangle((left, top), width, height, fill=False, edgecolor=INK, linewidth=0.3)
    frame.set_gid(tip(text))
    ax.add_patch(frame)
