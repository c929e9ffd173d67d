"""Default figures of the shapes of results, for types without a registered figure."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from visprism.drawing.color_bars import color_bar, on_grid, side_by_side
from visprism.drawing.depth import (
    PlainLogFormatter,
    against_depth,
    from_zero,
    kinds_key,
)
from visprism.drawing.registry import figure
from visprism.drawing.style import KIND_COLORS, SIMILARITY, legend
from visprism.drawing.text import title
from visprism.table.shapes import (
    BlockMatrix,
    Curve,
    Pictures,
    ScalarPerBlock,
    SeriesPerBlock,
    Surface,
)


@figure(width=2.75, height=2.0, key=kinds_key, key_height=0.25)
def _(
    result: ScalarPerBlock,
    ax: Axes,
    *,
    quantity: str = "",
    scale: Literal["", "linear", "zero", "log"] = "",
) -> Axes:
    """The value, or another column, against depth, with its 95% interval.

    A linear axis from "zero" is for sizes, "log" where models differ by orders of magnitude;
    where no value is positive the axis is linear.
    """
    name, form = quantity or result.value_name, scale or result.scale
    against_depth(ax, result, name)
    if form == "zero":
        from_zero(ax)
    if form == "log" and (getattr(result, name) > 0).any():
        ax.set_yscale("log")
        ax.yaxis.set_major_formatter(PlainLogFormatter())
        ax.yaxis.set_minor_formatter(PlainLogFormatter(minor_thresholds=(2.5, 0.5)))
    ax.set_ylabel(result.infos()[name].heading)
    return ax


@figure(width=2.75, height=2.0)
def _(result: SeriesPerBlock, ax: Axes, *, quantity: str = "") -> Axes:
    """A line for each series of the value, or another column, with 95% intervals."""
    column = quantity or result.value_name
    values = np.asarray(getattr(result, column), dtype=float)
    for name, rows, color in _colored(result.series()):
        finite = rows[np.isfinite(values[rows])]
        value = values[finite]
        low, high = (ends[finite] for ends in result.intervals_of(column))
        error = np.stack([value - low, high - value])
        ax.errorbar(
            result.depth[finite],
            value,
            yerr=error if np.isfinite(error).all() else None,
            color=color,
            marker="o",
            markersize=2.6,
            linewidth=1.0,
            elinewidth=0.7,
            label=name,
        )
    if len(result.series()) > 1:
        legend(ax)
    heading = result.infos()[column].heading
    ax.set(xlim=(-0.02, 1.02), xlabel="Normalized depth", ylabel=heading)
    return ax


def _colored(series: dict[str, np.ndarray]) -> list[tuple[str, np.ndarray, str]]:
    palette = list(KIND_COLORS.values())[1:]
    return [(n, r, palette[i % len(palette)]) for i, (n, r) in enumerate(series.items())]


def value_bar(figure: Figure | Axes, axes: Sequence[Axes], **options: Any) -> None:
    """A color bar at the side, of one scale for all axes."""
    mappables = [m for ax in axes for m in (*ax.images, *ax.collections)]
    if mappables:
        ends = np.array([m.get_clim() for m in mappables], dtype=float)
        for mappable in mappables:
            mappable.set_clim(np.nanmin(ends), np.nanmax(ends))
        label = str(mappables[0].get_label())
        style = PercentFormatter(1, decimals=0) if (ends == (0, 1)).all() else None
        color_bar(figure, axes, label, mappable=mappables[0], format=style, **options)


@figure(width=2.5, height=2.35, share=False, key=value_bar, key_width=0.7)
def _(result: BlockMatrix, ax: Axes, *, quantity: str = "") -> Axes:
    """The value of all pairs, from the first block at the lower left; lines separate stages.

    `quantity` names another column.
    """
    values = result.matrix(quantity).astype(float)
    image = ax.imshow(
        values, origin="lower", cmap=SIMILARITY, interpolation="nearest", aspect="auto"
    )
    image.set_label(result.infos()[quantity or result.value_name].heading)
    along, across = result.matrix("stage")[:, 0], result.matrix("other_stage")[0]
    for stages, line in ((along, ax.axhline), (across, ax.axvline)):
        for place in np.flatnonzero(np.diff(stages)):
            line(place + 0.5, color="white", linewidth=0.9)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True))
    ax.set(xlabel="Block (second of the pair)", ylabel="Block")
    return ax


@figure(width=2.75, height=2.0)
def _(result: Curve, ax: Axes) -> Axes:
    """A line for each curve, with its 95% interval."""
    x = np.asarray(getattr(result, result.x_name), dtype=float)
    for name, rows, color in _colored(result.series()):
        value, (low, high) = result.values[rows], (e[rows] for e in result.intervals)
        if np.isfinite([low, high]).all():
            ax.fill_between(x[rows], low, high, color=color, alpha=0.18, linewidth=0)
        ax.plot(x[rows], value, color=color, linewidth=1.1, label=name or "_value")
    if len(result.series()) > 1:
        legend(ax)
    if result.of_fractions:
        ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=None))
    if result.scale == "zero":
        from_zero(ax)
    infos = result.infos()
    ax.set(xlabel=infos[result.x_name].heading, ylabel=result.value_info().heading)
    return ax


@figure(width=2.6, height=2.2, share=False, key=value_bar, key_width=0.7)
def _(result: Surface, ax: Axes) -> Axes:
    """The value over both variables, in percent of 0 to 100 for fractions, gaps left empty."""
    x, y = (np.asarray(getattr(result, n), dtype=float) for n in (result.x_name, result.y_name))
    columns, rows, grid = on_grid(x, y, result.values)
    mesh = ax.pcolormesh(columns, rows, grid, cmap=SIMILARITY, shading="nearest")
    mesh.set_label(result.value_info().heading)
    if result.of_fractions:
        mesh.set_clim(0, 1)
    infos = result.infos()
    ax.set(xlabel=infos[result.x_name].heading, ylabel=infos[result.y_name].heading)
    return ax


_PICTURE_BAR = partial(value_bar, pad=0.01)


@figure(width=6.0, height=1.4, across=1, share=False, key=_PICTURE_BAR, key_width=0.65)
def _(result: Pictures, ax: Axes) -> Axes:
    """The pictures side by side on one color scale, with their names below."""
    pictures, log = result.pictures(), result.scale == "log"
    most = np.nanmax(result.values)
    least = 1e-4 * most if log else np.nanmin(result.values)
    side_by_side(
        ax,
        pictures,
        lambda name, _: title(name, width=6.0 / len(pictures), size=7.0),
        cmap=SIMILARITY,
        label=result.value_info().heading,
        norm=(LogNorm if log else Normalize)(least, most, clip=log),
    )
    return ax
