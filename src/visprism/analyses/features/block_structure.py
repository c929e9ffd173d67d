"""Block structure: how far the stages of a model show in the CKA of its blocks.

Neighboring blocks are similar in any network, so pairs of blocks are compared at equal
distance. The score is the mean CKA of pairs within a stage, less the mean CKA of pairs in two
stages that lie as many blocks apart.

Source: Nguyen, Raghu and Kornblith (2021), Do wide and deep networks learn the same things?
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from visprism import kit
from visprism.drawing import style
from visprism.drawing.color_bars import UNIT, color_bar
from visprism.drawing.registry import figure
from visprism.estimates.answers import Answer


@kit.result("block-structure", "Block structure")
class BlockStructure(kit.Result):
    """CKA within and between the stages of one model; one row for each pair of stages.

    Each cell is a pair of stages: mean CKA of their pairs of blocks, and its excess over
    all pairs at equal distance. Block structure is CKA within stages minus between stages,
    at equal distance.
    """

    stage: np.ndarray = kit.column("Stage", "", "1 for the first after the stem")
    other_stage: np.ndarray = kit.column("Other stage", "", "the same stage or a later one")
    pairs: np.ndarray = kit.column(
        "Pairs of blocks", "", "number of pairs of different blocks, one in each stage"
    )
    cka: np.ndarray = kit.column(
        "Mean CKA", "", "debiased, mean of these pairs; NaN where a stage has only one block"
    )
    excess: np.ndarray = kit.column(
        "Excess CKA", "", "mean CKA minus the mean of all pairs of the model as far apart"
    )
    score: kit.Number = kit.estimate(
        "Block structure: CKA within minus between stages, at equal distance",
        "",
        "interval by the jackknife over groups of batches; NaN if not available",
        asks="Does CKA show block structure?",
        over="batches",
        comparison="none",
    )
    groups: int = kit.scalar("Groups", "", "groups of batches of the jackknife", default=0)

    def has_figure(self, **options: Any) -> bool:
        """Whether there are several stages to compare."""
        return len(np.unique(self.stage)) > 1

    def sentences(self) -> Iterator[str | kit.Finding]:
        """The score with its interval."""
        stages = len(np.unique(self.stage))
        if stages < 2:
            yield "the model has one stage, so it has no block structure"
            return
        if not np.isfinite(self.score):
            yield (
                f"block structure is not available: no block of the {stages} stages has "
                "another in its stage and one at the same distance in another stage"
            )
            return
        yield from super().sentences()

    def answers(self) -> tuple[Answer, ...]:
        """The score, if there is one."""
        return super().answers() if np.isfinite(self.score) else ()

    def reading(self, name: str, row: int) -> dict[str, Any]:
        """In how many stages CKA exceeds that at equal distance, of a significant score."""
        low, high = self.score.low, self.score.high
        if not (low > 0 or high < 0):
            return {}
        above, stages = self._stages_above()
        direction = "higher" if low > 0 else "lower"
        where = f"within stages than between in {above} of {stages} stages"
        return {"reading": f"{direction} {where}"}

    def _stages_above(self) -> tuple[int, int]:
        """Number of stages whose mean CKA exceeds that at equal distance, and of stages."""
        excess = self.excess[(self.stage == self.other_stage) & np.isfinite(self.excess)]
        return int((excess > 0).sum()), len(excess)


def block_structure(
    cka: Float[np.ndarray, "m m"],
    place: Int[np.ndarray, " m"],
    stage: Int[np.ndarray, " m"],
    score: kit.Number | None = None,
) -> BlockStructure:
    """Mean CKA of each pair of stages, and the score."""
    first, other = np.triu_indices(len(place), k=1)
    values, apart = cka[first, other], place[other] - place[first]
    expected = _mean_at(apart, values, np.ones(len(apart), dtype=bool))[apart]
    stages = np.unique(stage).tolist()
    rows = [(s, t) for s in stages for t in stages if s <= t]
    chosen = [(stage[first] == s) & (stage[other] == t) for s, t in rows]
    of_pairs, at_distance = (
        np.array([_mean(x[c]) for c in chosen], dtype=float) for x in (values, expected)
    )
    return BlockStructure(
        stage=np.array([s for s, _ in rows], dtype=int),
        other_stage=np.array([t for _, t in rows], dtype=int),
        pairs=np.array([c.sum() for c in chosen], dtype=int),
        cka=of_pairs,
        excess=of_pairs - at_distance,
        score=kit.Number(structure_score(cka, place, stage)) if score is None else score,
    )


def structure_score(
    cka: Float[np.ndarray, "m m"], place: Int[np.ndarray, " m"], stage: Int[np.ndarray, " m"]
) -> float:
    """Mean CKA of pairs within a stage, minus the mean of pairs between stages as far apart.

    Distances at which only one of the two occurs are left out. It is 1 if CKA is 1 within
    stages and 0 between, and 0 if CKA depends only on the distance.
    """
    first, other = np.triu_indices(len(place), k=1)
    values, apart = cka[first, other], place[other] - place[first]
    within = stage[first] == stage[other]
    contrast = values[within] - _mean_at(apart, values, ~within)[apart[within]]
    return _mean(contrast[np.isfinite(contrast)])


def _mean_at(
    apart: Int[np.ndarray, " p"], cka: Float[np.ndarray, " p"], chosen: Bool[np.ndarray, " p"]
) -> Float[np.ndarray, " d"]:
    """Mean CKA of the chosen pairs by distance; NaN where there is none."""
    longest = apart.max(initial=0) + 1
    count = np.bincount(apart[chosen], minlength=longest)
    total = np.bincount(apart[chosen], weights=cka[chosen], minlength=longest)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _mean(values: Float[np.ndarray, " q"]) -> float:
    return float(values.mean()) if len(values) else float("nan")


def similarity_bar(figure: Figure | Axes, axes: Sequence[Axes]) -> None:
    """A color bar at the side: CKA from 0 to 1."""
    color_bar(figure, axes, "CKA", ticks=[0, 0.2, 0.4, 0.6, 0.8, 1], aspect=22)


@figure(width=2.2, height=2.05, share=False, key=similarity_bar, key_width=0.7)
def _(result: BlockStructure, ax: Axes) -> Axes:
    """Mean CKA of each pair of stages; below it, its excess over pairs at equal distance."""
    stages = np.unique(result.stage).tolist()
    columns = (result.stage, result.other_stage, result.cka, result.excess)
    for stage, other, cka, excess in zip(*(c.tolist() for c in columns), strict=True):
        color, ink, text = style.FAINT, "white", "\N{EN DASH}"
        if np.isfinite(cka):
            color, ink = style.SIMILARITY(UNIT(cka)), "black" if cka > 0.6 else "white"
            signed = f"{round(excess, 2) + 0.0:+.2f}"  # + 0.0: no minus before 0
            text = f"{cka:.2f}\n{signed}".replace("-", "\N{MINUS SIGN}")
        i, j = stages.index(stage), stages.index(other)
        for x, y in {(i, j), (j, i)}:
            ax.add_patch(Rectangle((x, y), 1, 1, facecolor=color, edgecolor="white"))
            ax.text(x + 0.5, y + 0.5, text, ha="center", va="center", color=ink, size="small")
    ax.set_xticks(np.arange(len(stages)) + 0.5, list(map(str, stages)))
    ax.set_yticks(np.arange(len(stages)) + 0.5, list(map(str, stages)))
    ax.tick_params(length=0)
    limits = (0, max(1, len(stages)))
    ax.set(xlim=limits, ylim=limits, ylabel="Stage", aspect="equal")
    ax.set_xlabel("Stage")
    ax.spines[:].set_visible(False)
    return ax
