"""Figures of loss landscapes: `Landscape` as contours, as a surface and in slices.

Losses have one scale for all models of as many classes: linear from 0 to chance
level, log(classes), and logarithmic beyond, where the loss depends only on the scale of the
logits.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PolyCollection
from matplotlib.colors import Colormap, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from visprism.figures.losses import CHANCE_POSITION, LOSSES, LossScale
from visprism.figures.perspective import outline_at, project_isometric
from visprism.figures.registry import figure
from visprism.figures.style import FAINT, INK, SIMILARITY, STRIP, tip
from visprism.results.landscape import Landscape
from visprism.results.trajectory import Projection

View = Literal["contour", "surface", "slices"]
Quantity = Literal["nll", "l2", "accuracy"]

LABELS = {name: Landscape.infos()[name].heading for name in ("nll", "l2", "accuracy")}
AXES = {
    "random": ("First random direction", "Second random direction"),
    "checkpoints": ("Direction of the checkpoint", "Orthogonal direction"),
    "given": ("First direction", "Second direction"),
}
_LEVELS = (0.02, 0.05, 0.1, 0.2, 0.5)  # of contour lines, as fractions of log(classes)
_CUT = 2.5  # a slice ends above this many log(classes)


def value_bar(figure: Figure, axes: Sequence[Axes]) -> None:
    """A color bar at the side, of one scale for all axes; none beside slices."""
    surfaces: list[ScalarMappable] = [
        artist
        for ax in axes
        for artist in (*ax.images, *ax.collections)
        if str(artist.get_label()) in LABELS.values()
    ]
    if not surfaces:
        return
    scale = surfaces[0].norm
    if not isinstance(scale, LossScale):
        ends = np.array([(s.norm.vmin, s.norm.vmax) for s in surfaces], dtype=float)
        scale = Normalize(float(ends.min()), float(ends.max()))
        for surface in surfaces:
            surface.set_norm(scale)
    label = surfaces[0].get_label()  # pyrefly: ignore
    bar = figure.colorbar(surfaces[0], ax=list(axes), label=label, aspect=22, pad=0.02)
    if isinstance(scale, LossScale):
        same = len({surface.norm.vmax for surface in surfaces}) == 1
        bar.set_ticks(scale.ticks(), labels=scale.labels(numbers=same))
    bar.ax.minorticks_off()
    bar.outline.set_visible(False)


@figure(width=2.6, height=2.3, share=False, key=value_bar, key_width=0.8)
def _(
    result: Landscape,
    ax: Axes,
    *,
    view: View = "contour",
    quantity: Quantity = "nll",
    pair: int = 0,
    path: Projection | None = None,
) -> Axes:
    """One plane, or slices through all; lines have slices only.

    `path` is drawn on contours: snapshots or checkpoints in their order.
    """
    if view == "slices" or len(np.unique(result.b)) == 1:
        return _slices(ax, result, quantity)
    rows, pairs = result.select(result.pair == pair), len(np.unique(result.pair))
    if view == "surface":
        _surface(ax, rows, quantity)
    else:
        _contour(ax, rows, quantity, path)
    if pairs > 1:
        which, at = f"pair {pair + 1} of {pairs}", {"xy": (0.98, 0.02), "ha": "right"}
        box = {"facecolor": "white", "alpha": 0.7, "linewidth": 0, "pad": 1}
        ax.annotate(which, xycoords="axes fraction", fontsize="x-small", bbox=box, **at)
    return ax


def _contour(ax: Axes, rows: Landscape, quantity: Quantity, path: Projection | None) -> Axes:
    """Colors, and contour lines; the bold one is chance level, log(classes)."""
    a, b = np.unique(rows.a), np.unique(rows.b)
    table = getattr(rows, quantity).reshape(len(b), len(a))
    half = [(axis[1] - axis[0]) / 2 for axis in (a, b)]
    norm, colors = _scale(rows, quantity)
    ax.imshow(
        np.ma.masked_invalid(table),
        extent=(a[0] - half[0], a[-1] + half[0], b[0] - half[1], b[-1] + half[1]),
        origin="lower",
        norm=norm,
        cmap=colors,
        interpolation="bilinear",
        aspect="auto",
        label=LABELS[quantity],
    )
    if isinstance(norm, LossScale):
        with np.errstate(invalid="ignore"):
            inside = np.where(np.isfinite(table), table, np.nanmax(table[np.isfinite(table)]))
        fine = [f * norm.chance for f in _LEVELS]
        ax.contour(a, b, inside, levels=fine, colors="white", linewidths=0.4, alpha=0.7)
        ax.contour(a, b, inside, levels=[norm.chance], colors=INK, linewidths=1.1)
    if path is not None:
        ax.plot(path.a, path.b, color="white", linewidth=2.2, label="_path")
        ax.plot(path.a, path.b, color=INK, linewidth=0.9, marker="o", markersize=2.2)
    ax.plot(0, 0, marker="+", color="white", markersize=6, gid=tip("the model's weights"))
    across, along = AXES[rows.plane]
    ax.set(xlim=(a[0], a[-1]), ylim=(b[0], b[-1]), xlabel=across, ylabel=along)
    ax.set_aspect("equal")
    ax.xaxis.set_major_locator(MaxNLocator(5))
    ax.yaxis.set_major_locator(MaxNLocator(5))
    return ax


def _surface(ax: Axes, rows: Landscape, quantity: Quantity) -> Axes:
    """The surface from a corner and above; height and color are positions on the scale."""
    a, b = np.unique(rows.a), np.unique(rows.b)
    value = getattr(rows, quantity).reshape(len(b), len(a))
    norm, colors = _scale(rows, quantity)
    height = np.ma.filled(np.ma.masked_invalid(norm(value)), 1.0)
    x, y = np.meshgrid(np.linspace(-1, 1, len(a)), np.linspace(-1, 1, len(b)))
    place = project_isometric(x, y, height)
    near = place[..., 2]
    corners = [(slice(None, -1), slice(None, -1)), (slice(None, -1), slice(1, None))]
    corners += [(slice(1, None), slice(1, None)), (slice(1, None), slice(None, -1))]
    cells = np.stack([place[c][..., :2] for c in corners], axis=2).reshape(-1, 4, 2)
    middle = np.mean([height[c] for c in corners], axis=0).ravel()
    order = np.argsort(np.mean([near[c] for c in corners], axis=0).ravel())  # far ones first
    _floor(ax, norm)
    ax.add_collection(
        PolyCollection(
            list(cells[order]),
            array=norm.inverse(middle[order]),
            cmap=colors,
            norm=norm,
            edgecolor=(0, 0, 0, 0.35),
            linewidth=0.25,
            label=LABELS[quantity],
        )
    )
    return ax


def _floor(ax: Axes, norm: Normalize) -> None:
    """The floor of a surface, and on the walls behind it a line at chance level."""
    ax.plot(*outline_at(0.0).T, color=STRIP, linewidth=0.6, zorder=0, label="_floor")
    if isinstance(norm, LossScale):
        behind = outline_at(CHANCE_POSITION)[[0, 3, 2]]
        ax.plot(*behind.T, color=INK, linewidth=0.8, linestyle=(0, (4, 2)), zorder=0)
        ax.annotate(
            f"log {norm.classes}",
            tuple(behind[0]),
            xytext=(-2, 0),
            textcoords="offset points",
            ha="right",
            va="center",
            fontsize="x-small",
        )
    for text, x, y in (("1st direction", 0.0, -1.25), ("2nd direction", 1.25, 0.0)):
        at = project_isometric(np.array(x), np.array(y), np.array(0.0))
        ax.annotate(
            text, (at[0], at[1]), ha="center", va="top", fontsize="x-small", color=FAINT
        )
    ax.set(xlim=(-1.65, 1.5), ylim=(-1.55, 1.75), aspect="equal")
    ax.axis("off")


def _slices(ax: Axes, result: Landscape, quantity: Quantity) -> Axes:
    """The values along each direction through the weights; bold, their mean."""
    lines: list[tuple[np.ndarray, np.ndarray]] = []
    for pair in np.unique(result.pair):
        rows = result.select(result.pair == pair)
        for along, across in ((rows.a, rows.b), (rows.b, rows.a)):
            on = np.abs(across) == np.abs(across).min()
            if len(np.unique(along[on])) > 1:
                lines.append((along[on], getattr(rows, quantity)[on]))
    several = len(lines) > 1
    for along, values in lines:
        color, width = (STRIP, 0.7) if several else (INK, 1.4)
        ax.plot(
            along, np.ma.masked_invalid(values), color=color, linewidth=width, label="_slice"
        )
    if several and all(len(x) == len(lines[0][0]) for x, _ in lines):
        mean = np.mean([values for _, values in lines], axis=0)
        ax.plot(lines[0][0], np.ma.masked_invalid(mean), color=INK, linewidth=1.4, label="mean")
    if quantity == "nll" and result.classes > 1:
        chance = float(np.log(result.classes))
        ax.axhline(chance, color=INK, linewidth=0.8, linestyle=(0, (4, 2)), label="_chance")
        ax.annotate(
            f"log {result.classes}",
            (1, chance),
            xycoords=("axes fraction", "data"),
            xytext=(-2, 2),
            textcoords="offset points",
            ha="right",
            fontsize="x-small",
        )
        top = np.nanmax(np.where(np.isfinite(result.nll), result.nll, 0))
        ax.set_ylim(0, min(_CUT * chance, max(1.05 * top, 1.1 * chance)))
    if quantity == "accuracy":
        ax.set_ylim(0, 1)
    ax.set(
        xlabel=AXES[result.plane][0].replace("First random", "Random"), ylabel=LABELS[quantity]
    )
    return ax


def _scale(rows: Landscape, quantity: Quantity) -> tuple[Normalize, Colormap]:
    if quantity == "nll":
        return LossScale(rows.classes), LOSSES
    if quantity == "accuracy":
        return Normalize(0, 1), SIMILARITY
    return Normalize(float(rows.l2.min()), float(rows.l2.max())), SIMILARITY
