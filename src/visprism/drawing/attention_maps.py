"""Figures of `AttentionMaps` and a `Rollout`, alone and over the image that they are of."""

import numpy as np
from jaxtyping import UInt8
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from visprism.drawing.registry import figure
from visprism.drawing.style import FAINT, INK, paper_style, tip
from visprism.drawing.text import caption
from visprism.results.attention import AttentionMaps, Rollout

_COLORS = "magma"
_VEIL = 0.72  # how much of a map hides the image below
_SIDE = 0.95  # inches
_BLOCKS, _HEADS = 4, 6  # most that are shown
_SMALL = 5.5  # points


_MOST, _GAP = 7, 0.08  # pictures side by side, and the space between them


@figure(width=6.1, height=1.15, across=1, share=False)
def _(result: AttentionMaps, ax: Axes) -> Axes:
    """Weights of the query, mean over heads, of up to seven attentions over the depth."""
    names = list(dict.fromkeys(result.block.tolist()))
    chosen = np.unique(np.linspace(0, len(names) - 1, min(_MOST, len(names))).round())
    pictures = {}
    for i in chosen.astype(int):
        rows = result.select(result.block == names[i])
        total = np.zeros((rows.row.max() + 1, rows.column.max() + 1))
        np.add.at(total, (rows.row, rows.column), rows.weight)
        pictures[names[i]] = total
    return _pictures(ax, pictures)


@figure(width=2.2, height=1.8, share=False)
def _(result: Rollout, ax: Axes) -> Axes:
    """The rollout on the token grid, from its smallest to its largest value."""
    picture = _grid(result.row, result.column, result.weight)
    return _pictures(ax, {f"rollout ({result.method})": picture})


def _pictures(ax: Axes, pictures: dict[str, np.ndarray]) -> Axes:
    """Pictures of height 1 side by side, each on its own scale, with their names below."""
    left = 0.0
    for name, picture in pictures.items():
        width = picture.shape[1] / picture.shape[0]
        extent = (left, left + width, 1, 0)
        image = ax.imshow(picture, cmap=_COLORS, extent=extent, interpolation="nearest")
        image.set_gid(tip(name))
        ax.annotate(
            name,
            (left + width / 2, 1),
            xytext=(0, -2),
            textcoords="offset points",
            ha="center",
            va="top",
            fontsize=_SMALL,
        )
        left += width * (1 + _GAP)
    ax.set(xlim=(0, max(left - _GAP, 1e-9)), ylim=(1.15, 0))
    ax.axis("off")
    return ax


def over_image(
    maps: AttentionMaps,
    image: UInt8[np.ndarray, "h w 3"],
    *,
    rollout: Rollout | None = None,
) -> Figure:
    """Each head of some attentions over the image, a row for each attention.

    Of more than four attentions four are shown, spread over the depth, and of more than six
    heads the first six. A map's colors go from 0 to its own largest weight. The first column
    has the image with the query, or the rollout.
    """
    names = list(dict.fromkeys(maps.block.tolist()))
    chosen = np.unique(np.linspace(0, len(names) - 1, min(_BLOCKS, len(names))).round())
    attentions, names = len(names), [names[int(i)] for i in chosen]
    most = max(int(maps.head[maps.block == name].max()) for name in names)
    heads = min(_HEADS, most)
    with paper_style():
        size = (
            _SIDE * (heads + 1) + 0.2,
            (_SIDE * image.shape[0] / image.shape[1] + 0.3) * len(names) + 0.3,
        )
        canvas = Figure(size, layout="constrained")
        grid = canvas.subplots(len(names), heads + 1, squeeze=False)
        for ax in grid.ravel():
            ax.axis("off")
        _first(grid[0, 0], maps, image, "Image")
        if rollout is not None and len(names) > 1:
            flow = _grid(rollout.row, rollout.column, rollout.weight)
            _over(grid[1, 0], flow, image, least=flow.min())
            grid[1, 0].set_title("\nRollout", fontsize=6, color=INK)
        for i, name in enumerate(names):
            attention = maps.select(maps.block == name)
            for head in range(1, min(heads, int(attention.head.max())) + 1):
                rows = attention.select(attention.head == head)
                ax = grid[i, head]
                _over(ax, _grid(rows.row, rows.column, rows.weight), image)
                title = f"{name if head == 1 else ''}\nhead {head} ≤ {rows.weight.max():.2g}"
                ax.set_title(title, fontsize=6, color=INK, loc="left", parse_math=False)
        parts = [
            maps.provenance.model,
            f"{len(names)} of {attentions} attention layers, {heads} of {most} heads",
            "each map from 0 to its own largest weight (\N{LESS-THAN OR EQUAL TO})",
        ]
        text = caption(
            [" · ".join(filter(None, parts))], [""], width=size[0] - 0.1, size=_SMALL
        )
        canvas.supxlabel(
            text, x=0.01, ha="left", fontsize=_SMALL, color=FAINT, parse_math=False
        )
    return canvas


def _grid(row: np.ndarray, column: np.ndarray, value: np.ndarray) -> np.ndarray:
    grid = np.zeros((row.max() + 1, column.max() + 1))
    grid[row, column] = value
    return grid


def _over(ax: Axes, values: np.ndarray, image: np.ndarray, *, least: float = 0.0) -> None:
    height, width = image.shape[:2]
    ax.imshow(image, extent=(0, width, height, 0))
    top = values.max() or 1.0
    ax.imshow(
        values,
        cmap=_COLORS,
        vmin=least,
        vmax=top,
        alpha=_VEIL,
        extent=(0, width, height, 0),
        interpolation="nearest",
    )


def _first(ax: Axes, maps: AttentionMaps, image: np.ndarray, title: str) -> None:
    height, width = image.shape[:2]
    ax.imshow(image, extent=(0, width, height, 0))
    query = {"mean": "mean over queries", "class": "class token"}.get(maps.query, "query: +")
    ax.set_title(f"{title}:\n{query}", fontsize=6, color=FAINT)
    if "," in maps.query:
        y, x = map(int, maps.query.split(","))
        ax.plot(x + 0.5, y + 0.5, marker="+", markersize=6, color="white", markeredgewidth=2)
        ax.plot(x + 0.5, y + 0.5, marker="+", markersize=6, color="#D55E00", markeredgewidth=1)
