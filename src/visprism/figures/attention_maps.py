"""Figure of `AttentionMaps` and a `Rollout` over the image that they are of."""

import numpy as np
from jaxtyping import UInt8
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from visprism.figures.style import FAINT, INK, paper_style
from visprism.figures.text import caption
from visprism.results.attention import AttentionMaps, Rollout

_COLORS = "magma"
_VEIL = 0.72  # how much of a map hides the image below
_SIDE = 0.95  # inches
_BLOCKS, _HEADS = 4, 6  # most that are shown
_SMALL = 5.5  # points


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
        figure = Figure(size, layout="constrained")
        grid = figure.subplots(len(names), heads + 1, squeeze=False)
        for ax in grid.ravel():
            ax.axis("off")
        _first(grid[0, 0], maps, image, "Image")
        if rollout is not None and len(names) > 1:
            shown = _grid(rollout.row, rollout.column, rollout.weight)
            _over(grid[1, 0], shown, image, least=shown.min())
            grid[1, 0].set_title("\nRollout", fontsize=6, color=INK)
        for i, name in enumerate(names):
            own = maps.select(maps.block == name)
            for head in range(1, min(heads, int(own.head.max())) + 1):
                rows = own.select(own.head == head)
                ax = grid[i, head]
                _over(ax, _grid(rows.row, rows.column, rows.weight), image)
                title = f"{name if head == 1 else ''}\nhead {head} ≤ {rows.weight.max():.2g}"
                ax.set_title(title, fontsize=6, color=INK, loc="left", parse_math=False)
        told = [
            maps.provenance.model,
            f"{len(names)} of {attentions} attentions, {heads} of {most} heads",
            "each map from 0 to its own largest weight (\N{LESS-THAN OR EQUAL TO})",
        ]
        text = caption([" · ".join(filter(None, told))], [""], width=size[0] - 0.1, size=_SMALL)
        figure.supxlabel(
            text, x=0.01, ha="left", fontsize=_SMALL, color=FAINT, parse_math=False
        )
    return figure


def _grid(row: np.ndarray, column: np.ndarray, value: np.ndarray) -> np.ndarray:
    shown = np.zeros((row.max() + 1, column.max() + 1))
    shown[row, column] = value
    return shown


def _over(ax: Axes, shown: np.ndarray, image: np.ndarray, *, least: float = 0.0) -> None:
    height, width = image.shape[:2]
    ax.imshow(image, extent=(0, width, height, 0))
    top = shown.max() or 1.0
    ax.imshow(
        shown,
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
    told = {"mean": "mean over queries", "class": "class token asks"}.get(maps.query, "+ asks")
    ax.set_title(f"{title}:\n{told}", fontsize=6, color=FAINT)
    if "," in maps.query:
        y, x = map(int, maps.query.split(","))
        ax.plot(x + 0.5, y + 0.5, marker="+", markersize=6, color="white", markeredgewidth=2)
        ax.plot(x + 0.5, y + 0.5, marker="+", markersize=6, color="#D55E00", markeredgewidth=1)
