"""Block structure: whether the blocks of a stage are more alike than those of two stages.

Neighbours are alike in any network, so pairs of blocks are compared with pairs that lie as far
apart. A network whose similarity depends on that distance alone has no block structure.
"""

import numpy as np
from jaxtyping import Bool, Float, Int

from visprism.core.errors import InputError
from visprism.measure.features.cka import Similarity
from visprism.results.base import Result, column, result_type, scalar


@result_type("block-structure")
class BlockStructure(Result):
    """CKA within and between the stages of one model; one row for each pair of stages."""

    stage: np.ndarray = column("Stage", "", "1 for the first after the stem")
    other_stage: np.ndarray = column("Other stage", "", "the same stage or a later one")
    pairs: np.ndarray = column(
        "Pairs of blocks", "", "pairs of different blocks, one in each stage"
    )
    cka: np.ndarray = column(
        "Mean CKA", "", "mean of these pairs, debiased; NaN where a stage has only one block"
    )
    expected: np.ndarray = column(
        "As far apart", "", "mean CKA of all pairs of the model that are as far apart"
    )
    excess: np.ndarray = column("Difference", "", "cka less expected")
    score: float = scalar(
        "Score", "", "within stages less between, at equal distance; NaN where none can be had"
    )

    def sentences(self) -> list[str]:
        """What was found, with its numbers."""
        stages = len(np.unique(self.stage))
        if stages < 2:
            return ["there is one stage, so no block structure"]
        if not np.isfinite(self.score):
            return [
                f"block structure cannot be told: no block of the {stages} stages has another "
                "in its stage and one as far away in another stage"
            ]
        within = self.stage == self.other_stage
        inside = np.nansum((self.cka * self.pairs)[within]) / self.pairs[within].sum()
        more = "more" if self.score > 0 else "less"
        return [
            f"blocks in one stage are {more} alike than blocks as far apart in two (mean CKA "
            f"{inside:.2f} in one of {stages} stages, block structure {self.score:+.2f})"
        ]


def block_structure(similarity: Similarity) -> BlockStructure:
    """How far the stages of a model show in its CKA.

    The score is the mean, over pairs of different blocks in one stage, of their CKA less the
    mean CKA of the pairs in two stages that lie as many blocks apart; distances at which only
    one of the two occurs are left out. It is 1 where CKA is 1 within stages and 0 between, and
    0 where CKA depends on the distance alone. Blocks whose CKA is not defined are left out, and
    so is the stem, which is a stage of its own.

    Raises:
        InputError: if the similarity is that of two models.
    """
    if similarity.other_model:
        raise InputError(
            "block structure is a property of one model, and this similarity is of two; "
            "observe one model with CKAProbe"
        )
    counted = similarity.select(
        similarity.defined & (similarity.kind != "stem") & (similarity.other_kind != "stem")
    )
    names = list(dict.fromkeys(counted.block.tolist()))
    place = {name: i for i, name in enumerate(dict.fromkeys(similarity.block.tolist()))}
    first = np.array([place[name] for name in counted.block.tolist()], dtype=int)
    other = np.array([place[name] for name in counted.other.tolist()], dtype=int)
    pairs = counted.select(other > first)
    apart = (other - first)[other > first]
    within = pairs.stage == pairs.other_stage
    expected = _mean_at(apart, pairs.cka, np.ones_like(within))[apart]
    stages = np.unique([counted.stage[counted.block.tolist().index(n)] for n in names])
    rows = [(s, t) for s in stages.tolist() for t in stages.tolist() if s <= t]
    chosen = [(pairs.stage == s) & (pairs.other_stage == t) for s, t in rows]
    cka = np.array([_mean(pairs.cka[c]) for c in chosen], dtype=float)
    as_far = np.array([_mean(expected[c]) for c in chosen], dtype=float)
    return BlockStructure(
        stage=np.array([s for s, _ in rows], dtype=int),
        other_stage=np.array([t for _, t in rows], dtype=int),
        pairs=np.array([c.sum() for c in chosen], dtype=int),
        cka=cka,
        expected=as_far,
        excess=cka - as_far,
        score=_mean(_contrast(apart, pairs.cka, within)),
        provenance=similarity.provenance,
    )


def _contrast(
    apart: Int[np.ndarray, "p"], cka: Float[np.ndarray, "p"], within: Bool[np.ndarray, "p"]
) -> Float[np.ndarray, "q"]:
    """CKA of each pair within a stage, less the mean of those between stages as far apart."""
    contrast = cka[within] - _mean_at(apart, cka, ~within)[apart[within]]
    return contrast[np.isfinite(contrast)]


def _mean_at(
    apart: Int[np.ndarray, "p"], cka: Float[np.ndarray, "p"], chosen: Bool[np.ndarray, "p"]
) -> Float[np.ndarray, "d"]:
    """Mean CKA of the chosen pairs by distance; NaN where there is none."""
    longest = apart.max(initial=0) + 1
    many = np.bincount(apart[chosen], minlength=longest)
    total = np.bincount(apart[chosen], weights=cka[chosen], minlength=longest)
    return np.where(many > 0, total / np.maximum(many, 1), np.nan)


def _mean(values: Float[np.ndarray, "q"]) -> float:
    return float(values.mean()) if len(values) else float("nan")
