"""Figures of effective receptive fields: `ReceptiveField` against depth, `ReceptiveMaps`."""

from collections.abc import Sequence
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter

from visprism.drawing.color_bars import color_bar
from visprism.drawing.depth import against_depth, from_zero, kinds_key
from visprism.drawing.registry import figure
from visprism.drawing.style import FAINT, INK, tip
from visprism.results.receptive_field import ReceptiveField, ReceptiveMaps

_SCALE = LogNorm(1e-4, 1, clip=True)
_COLORS = "magma"  # its lightness rises evenly, so it reads in gray too
_GAP = 0.08  # between maps, of the width of one
_LETTERS = 17  # that stand below one map


@figure(width=2.75, height=2.0, key=kinds_key, key_height=0.25)
def _(
    result: ReceptiveField,
    ax: Axes,
    *,
    quantity: Literal["sigma", "side_50", "side_95"] = "sigma",
) -> Axes:
    """Size against depth; the dashed line is that of a field with equal weights."""
    against_depth(ax, result, quantity)
    if quantity == "sigma":
        ax.axhline(
            result.uniform_sigma,
            color=FAINT,
            linewidth=0.8,
            linestyle=(0, (4, 2)),
            zorder=1,
            label="_uniform field",
        )
    from_zero(ax)
    ax.set_ylabel(result.infos()[quantity].heading)
    return ax


def strength_bar(figure: Figure, axes: Sequence[Axes]) -> None:
    """A color bar at the side: weight of a pixel."""
    bar = color_bar(
        figure,
        axes,
        "Relative to strongest",
        scale=_SCALE,
        colors=_COLORS,
        ticks=[1e-4, 1e-3, 1e-2, 1e-1, 1],
        format=FuncFormatter(lambda value, _: f"{value:g}"),
        aspect=12,
        pad=0.01,
    )
    bar.ax.tick_params(which="minor", length=0)


@figure(width=6.1, height=1.15, across=1, key=strength_bar, key_width=0.65)
def _(result: ReceptiveMaps, ax: Axes) -> Axes:
    """The maps side by side in forward order, each the whole image; below, names and depths."""
    cells = result.row.max() + 1, result.column.max() + 1
    width = cells[1] / cells[0]  # the image is 1 high, so that models of any size share axes
    names = list(dict.fromkeys(result.block.tolist()))
    step = (1 + _GAP) * width
    for i, name in enumerate(names):
        rows = result.select(result.block == name)
        left = i * step
        ax.imshow(
            rows.relative.reshape(cells),
            norm=_SCALE,
            cmap=_COLORS,
            extent=(left, left + width, 1, 0),
            interpolation="nearest",
        )
        frame = Rectangle(
            (left, 0), width, 1, fill=False, edgecolor=INK, linewidth=0.4, label=name
        )
        frame.set_gid(tip(f"{name} · depth {rows.depth[0]:.2f}"))
        ax.add_patch(frame)
        short = name if len(name) <= _LETTERS else f"…{name[1 - _LETTERS :]}"
        for text, color, below in ((short, INK, 2), (f"{rows.depth[0]:.2f}", FAINT, 11)):
            ax.annotate(
                text,
                (left + width / 2, 1),
                xytext=(0, -below),
                textcoords="offset points",
                ha="center",
                va="top",
                fontsize="small",
                color=color,
            )
    ax.set(xlim=(0, len(names) * step - _GAP * width), ylim=(1, 0))
    ax.axis("off")
    return ax
