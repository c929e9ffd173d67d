"""Figures of CKA: `Similarity` of pairs of blocks, `BlockStructure` of pairs of stages."""

from collections.abc import Sequence
from math import ceil
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from visprism.drawing.color_bars import UNIT, color_bar
from visprism.drawing.registry import figure
from visprism.drawing.style import FAINT, SIMILARITY, tip
from visprism.drawing.text import title
from visprism.results.similarity import BlockStructure, Similarity

MINUS, DASH = "\N{MINUS SIGN}", "\N{EN DASH}"
_LABEL = 1.9  # inches; longest line of an axis' label
_NAME = 0.8  # inches; longest name of a block
_SMALL = 5.5  # points; of names of blocks
_MOST_NAMES, _MOST_NUMBERS = 12, 12  # along one axis


def similarity_bar(figure: Figure, axes: Sequence[Axes]) -> None:
    """A color bar at the side: CKA from 0 to 1."""
    color_bar(figure, axes, "CKA", ticks=[0, 0.2, 0.4, 0.6, 0.8, 1], aspect=22)


@figure(width=2.5, height=2.35, share=False, key=similarity_bar, key_width=0.7)
def _(
    result: Similarity,
    ax: Axes,
    *,
    quantity: Literal["cka", "biased"] = "cka",
    models: tuple[str, str] | None = None,
) -> Axes:
    """CKA of all pairs, from the first block at the lower left; lines separate stages.

    Every block is named for up to 12 blocks, and every second, third, ... for more. Maps of up
    to 12 x 12 pairs state their values.

    Pairs without a defined CKA are gray. Values below 0 have the color of 0. `models` names
    the two models of a comparison, as the provenance does where it is left out.
    """
    names = list(dict.fromkeys(result.block.tolist()))
    table = {
        name: getattr(result, name).reshape(len(names), -1)
        for name in (quantity, "defined", "stage", "other_stage", "other")
    }
    for (i, j), value in np.ndenumerate(table[quantity]):
        defined = table["defined"][i, j]
        color = SIMILARITY(UNIT(value)) if defined else FAINT
        number = f"{value:.2f}" if defined else "not defined"
        text = f"{names[i]} · {table['other'][i, j]} · {number}"
        cell = Rectangle((j, i), 1, 1, facecolor=color, edgecolor=color, linewidth=0.2)
        cell.set_gid(tip(text))
        cell.set_antialiased(False)  # or the seams between cells would show
        cell.set_in_layout(False)  # thousands of them would keep the layout busy
        ax.add_patch(cell)
    rows, columns = table[quantity].shape
    if max(rows, columns) <= _MOST_NUMBERS:
        _numbers(ax, np.where(table["defined"], table[quantity], np.nan))
    ax.set(xlim=(0, columns), ylim=(0, rows))
    _blocks(ax, ax.xaxis, table["other"][0], table["other_stage"][0])
    _blocks(ax, ax.yaxis, np.array(names), table["stage"][:, 0])
    ax.tick_params(axis="x", rotation=90)
    ax.set_aspect("equal" if not result.other_model else "auto")
    if result.other_model:
        first, other = models or (result.provenance.model or "first model", result.other_model)
        ax.set_xlabel(_of(other), parse_math=False)
        ax.set_ylabel(_of(first), parse_math=False)
    else:
        ax.set(xlabel="Block", ylabel="Block")
    for side in ("top", "right", "bottom", "left"):
        ax.spines[side].set_visible(False)
    return ax


def _of(model: str) -> str:
    return title(f"Block of {model}", width=_LABEL, size=8.0)


def _blocks(ax: Axes, axis: Axis, names: np.ndarray, stages: np.ndarray) -> None:
    """Names of at most 12 blocks at even distances, and white lines between stages.

    Blocks of parallel streams take turns, so that their stages are not divided by lines.
    """
    line = ax.axvline if axis is ax.xaxis else ax.axhline
    steps = np.diff(stages)
    for begin in np.flatnonzero(steps) + 1 if (steps >= 0).all() else []:
        line(float(begin), color="white", linewidth=0.9)
    named = np.arange(0, len(names), ceil(len(names) / _MOST_NAMES))
    labels = [title(str(names[i]), width=_NAME, size=_SMALL) for i in named]
    axis.set_ticks(named + 0.5, labels, fontsize=_SMALL, parse_math=False)
    axis.set_tick_params(length=0)


def _numbers(ax: Axes, values: np.ndarray) -> None:
    """The values in their cells, without the zero before the point."""
    for (i, j), value in np.ndenumerate(values):
        if np.isfinite(value):
            text = f"{value:.2f}".replace("0.", ".", 1).replace("-", MINUS)
            ink = "black" if value > 0.6 else "white"
            ax.text(j + 0.5, i + 0.5, text, ha="center", va="center", color=ink, fontsize=4.5)


@figure(width=2.2, height=2.05, share=False, key=similarity_bar, key_width=0.7)
def _(result: BlockStructure, ax: Axes) -> Axes:
    """Mean CKA of each pair of stages; below it, its excess over pairs at equal distance."""
    stages = np.unique(result.stage)
    place = {stage: i for i, stage in enumerate(stages.tolist())}
    for stage, other, cka, excess in zip(
        result.stage.tolist(),
        result.other_stage.tolist(),
        result.cka.tolist(),
        result.excess.tolist(),
        strict=True,
    ):
        available = np.isfinite(cka)
        color = SIMILARITY(UNIT(cka)) if available else FAINT
        signed = (
            f"{round(excess, 2) + 0.0:+.2f}" if available else ""
        )  # + 0.0: no minus before 0
        text = f"{cka:.2f}\n{signed}".replace("-", MINUS) if available else DASH
        ink = "black" if available and cka > 0.6 else "white"
        for x, y in {(place[stage], place[other]), (place[other], place[stage])}:
            ax.add_patch(Rectangle((x, y), 1, 1, facecolor=color, edgecolor="white"))
            ax.text(
                x + 0.5, y + 0.5, text, ha="center", va="center", color=ink, fontsize="small"
            )
    middles = np.arange(len(stages)) + 0.5
    labels = [str(stage) for stage in stages.tolist()]
    ax.set_xticks(middles, labels)
    ax.set_yticks(middles, labels)
    ax.tick_params(length=0)
    ax.set(
        xlim=(0, max(1, len(stages))),
        ylim=(0, max(1, len(stages))),
        xlabel="Stage (CKA, and its excess\nover pairs at equal distance)",
        ylabel="Stage",
        aspect="equal",
    )
    for side in ("top", "right", "bottom", "left"):
        ax.spines[side].set_visible(False)
    return ax
