"""Figures of CKA: `Similarity` of pairs of blocks, `BlockStructure` of pairs of stages."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from visprism.figures.color_bars import UNIT, color_bar
from visprism.figures.registry import figure
from visprism.figures.style import FAINT, SIMILARITY, tip
from visprism.figures.text import title
from visprism.results.similarity import BlockStructure, Similarity

MINUS, DASH = "\N{MINUS SIGN}", "\N{EN DASH}"
_LABEL = 1.9  # inches; longest line of an axis' label


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
    ax.set(xlim=(0, columns), ylim=(0, rows))
    _stages(ax, table["other_stage"][0], table["stage"][:, 0])
    ax.set_aspect("equal" if not result.other_model else "auto")
    if result.other_model:
        first, other = models or (result.provenance.model or "first model", result.other_model)
        ax.set_xlabel(_of(other), parse_math=False)
        ax.set_ylabel(_of(first), parse_math=False)
    else:
        ax.set(xlabel="Block, by stage (0: stem)", ylabel="Block, by stage")
    return ax


def _of(model: str) -> str:
    return title(f"Block of {model}", width=_LABEL, size=8.0)


def _stages(ax: Axes, across: np.ndarray, along: np.ndarray) -> None:
    """White lines between stages, and the stages' numbers at their middle."""
    for stages, line, axis in (
        (across, ax.axvline, ax.xaxis),
        (along, ax.axhline, ax.yaxis),
    ):
        begins = np.flatnonzero(np.diff(stages, prepend=-1))
        ends = np.append(begins[1:], len(stages))
        for begin in begins[1:]:
            line(begin, color="white", linewidth=0.9)
        # The stem alone is a sliver: its number would stand on that of the next stage.
        wide = (ends - begins) >= 0.06 * len(stages)
        middles = (begins + ends) / 2
        axis.set_ticks(middles[wide], [str(stages[b]) for b in begins[wide]])
        axis.set_tick_params(length=0)
    for side in ("top", "right", "bottom", "left"):
        ax.spines[side].set_visible(False)


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
