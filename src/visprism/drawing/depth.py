"""Shared parts of figures over the depth of a network: shading, points, keys."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import LogFormatter, MultipleLocator

from visprism.drawing.color_bars import color_bar
from visprism.drawing.style import (
    ATTENTION_SHADE,
    DEPTH,
    FAINT,
    KIND_COLORS,
    SUBSAMPLING_SHADE,
    color_of,
    marker_of,
    tip,
)
from visprism.drawing.text import inches
from visprism.estimates.text import interval_text
from visprism.table.result import Result
from visprism.table.shapes import PerBlock

_KEY_SIZE = 7.0  # points
_KEY_HANDLE = 0.3  # inches; a marker and the gaps about it
_KEY_LINE = 0.14

_LINES = ("-", (0, (4, 2)), (0, (1, 1.5)), (0, (4, 1.5, 1, 1.5)))  # of streams

SHADES = {"attention span": ATTENTION_SHADE, "subsampling span": SUBSAMPLING_SHADE}


def against_depth(ax: Axes, result: PerBlock, quantity: str) -> Axes:
    """A column by block with its 95% intervals, and the kinds of the blocks as shading.

    A block's span reaches from the depth of the block before it to its own, so that the slope
    inside the span is the change across the block. Attention is gray, subsampling blue.
    Parallel streams have separate lines and no spans; nor has a network of attention only.
    """
    attentions = np.char.find(result.kind, "attention") >= 0
    if np.any(result.stream) or attentions.all():  # spans would overlap, or be one
        return points(ax, result, quantity)
    before = result.depth[:1]
    for start, end, attends, subsampling in zip(
        np.concatenate([before, result.depth[:-1]]),
        result.depth,
        attentions,
        result.subsampling,
        strict=True,
    ):
        attention = "attention span" if attends else None
        shade = "subsampling span" if subsampling else attention
        if shade and end > start:
            ax.axvspan(start, end, color=SHADES[shade], linewidth=0, zorder=0, label=shade)
    return points(ax, result, quantity)


class PlainLogFormatter(LogFormatter):
    """Writes 0.3, 1, 3 on a logarithmic axis, not powers of ten."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        """The label of a tick; empty where labels would run into each other."""
        return f"{x:g}" if super().__call__(x, pos) else ""


def curves_of_blocks(ax: Axes, result: Any, x_name: str, quantity: str) -> None:
    """A column against another, a curve with its interval per block, colored by depth."""
    for name in dict.fromkeys(result.block.tolist()):
        rows = result.select(result.block == name)
        color = DEPTH(float(rows.depth[0]))
        x, y = getattr(rows, x_name), getattr(rows, quantity)
        low, high = rows.intervals_of(quantity)
        if np.isfinite([low, high]).all():
            ax.fill_between(x, low, high, color=color, alpha=0.16, linewidth=0)
        gid = tip(f"{name} · {rows.kind[0]} · depth {rows.depth[0]:.2f}")
        ax.plot(x, y, color=color, linewidth=1.1, label=name, gid=gid)


def spectra(ax: Axes, result: Any, quantity: str) -> None:
    """A column against frequency, a curve per block; see `curves_of_blocks`."""
    curves_of_blocks(ax, result, "frequency", quantity)
    ax.xaxis.set_major_locator(MultipleLocator(0.2))
    ax.set_xlim(0, max(1.0, result.frequency.max()))


def points(ax: Axes, result: Result, quantity: str) -> Axes:
    """One point per row of a column with its 95% interval, and a line for each stream.

    The result has the columns `block`, `kind` and `depth`.
    """
    columns = result.columns()
    depth, value = columns["depth"], np.asarray(getattr(result, quantity), dtype=float)
    low, high = result.intervals_of(quantity)
    stream = columns.get("stream", np.zeros(len(depth)))
    for number, style in zip(np.unique(stream), itertools.cycle(_LINES), strict=False):
        rows = stream == number
        line = {"color": FAINT, "linewidth": 0.8, "linestyle": style, "zorder": 2}
        ax.plot(depth[rows], value[rows], label="_by depth", **line)
    for i, (name, kind) in enumerate(zip(columns["block"], columns["kind"], strict=True)):
        ax.errorbar(
            depth[i],
            value[i],
            yerr=[[value[i] - low[i]], [high[i] - value[i]]],
            color=color_of(str(kind)),
            marker=marker_of(str(kind)),
            markersize=3.6,
            markeredgewidth=0.4,
            markeredgecolor="white",
            elinewidth=0.8,
            linestyle="none",
            zorder=3,
            label=str(kind),
            gid=tip(
                f"{name} · {kind} · depth {depth[i]:.2f} · "
                f"{interval_text(float(value[i]), float(low[i]), float(high[i]))}"
            ),
        )
    ax.set(xlim=(-0.02, 1.02), xlabel="Normalized depth")
    return ax


def stages(ax: Axes, result: Result) -> None:
    """A line where a new stage begins, and the stages' numbers above.

    The result has the columns `stage` and `depth`.
    """
    columns = result.columns()
    depth, stage = columns["depth"], columns["stage"]
    before, after = depth[:-1], depth[1:]
    new = stage[1:] != stage[:-1]
    ends = (before + (after - before) / 2)[new]
    for end in ends:
        ax.axvline(end, color=FAINT, linewidth=0.6, linestyle=(0, (4, 3)), zorder=1)
    if not len(ends):
        return
    numbers = stage[np.concatenate([[True], new])]
    edges = np.concatenate([depth[:1], ends, depth[-1:]])
    for number, left, right in zip(numbers, edges[:-1], edges[1:], strict=True):
        ax.text(
            (left + right) / 2,
            0.995,
            f"stage {number}" if number == numbers[0] else f"{number}",
            transform=ax.get_xaxis_transform(),
            ha="center",
            va="top",
            fontsize=6,
            color=FAINT,
        )


def from_zero(ax: Axes) -> None:
    """Let the vertical axis begin at 0, for sizes; its end still follows what is drawn.

    It ends at 1 where that is the largest value, as of fractions. A fixed limit would cut what
    another model shows on axes that share theirs.
    """
    ax.axhline(0, linewidth=0, label="_zero").sticky_edges.y.extend((0, 1))


def kinds_key(figure: Figure | Axes, axes: Sequence[Axes]) -> None:
    """A legend above: the kinds of block that occur, and the shades."""
    labels = {label for ax in axes for label in ax.get_legend_handles_labels()[1]}
    kinds = {
        kind: Line2D([], [], marker=marker_of(kind), color=color_of(kind), linestyle="none")
        for kind in in_order(labels - SHADES.keys())
    }
    shades = {name: Patch(color=color) for name, color in SHADES.items() if name in labels}
    legend_above(figure, kinds | shades)


def in_order(kinds: Iterable[str]) -> list[str]:
    """Kinds of block in the order of the palette, kinds of plugins last."""
    order = list(KIND_COLORS)
    return sorted(kinds, key=lambda k: (order.index(k) if k in order else len(order), k))


def legend_above(figure: Figure | Axes, handles: Mapping[str, Any]) -> None:
    """A legend above all axes, in as many lines as the figure's width asks for.

    The figure grows by what is more than one line. Axes of a figure that is not ours get an
    ordinary legend.
    """
    if not handles:
        return
    if isinstance(figure, Axes):
        figure.legend(list(handles.values()), list(handles))
        return
    widths = [inches(label, _KEY_SIZE) + _KEY_HANDLE for label in handles]
    for lines in range(1, len(widths) + 1):
        columns = [widths[i : i + lines] for i in range(0, len(widths), lines)]
        if sum(map(max, columns)) < figure.get_figwidth():
            break
    figure.set_figheight(figure.get_figheight() + (lines - 1) * _KEY_LINE)
    figure.legend(
        list(handles.values()),
        list(handles),
        loc="outside upper center",
        ncols=len(columns),
        fontsize=_KEY_SIZE,
        handlelength=1.2,
        handletextpad=0.4,
        columnspacing=1.2,
        markerscale=0.7,
    )


def depth_bar(figure: Figure | Axes, axes: Sequence[Axes]) -> None:
    """A color bar at the side: normalized depth."""
    ticks = [0, 0.25, 0.5, 0.75, 1]
    color_bar(figure, axes, "Normalized depth", colors=DEPTH, ticks=ticks, aspect=22)
