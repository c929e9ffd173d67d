"""CKA similarity of blocks, and the block structure that follows from it.

Source: Kornblith et al. (2019), Similarity of neural network representations revisited; Nguyen,
Raghu and Kornblith (2021), Do wide and deep networks learn the same things?
"""

from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Float, Int

from visprism.core.errors import InputError
from visprism.core.statistics import t_quantile
from visprism.estimates import questions
from visprism.estimates.answers import Answer
from visprism.estimates.findings import Finding
from visprism.estimates.text import images_text, selection_text
from visprism.table.result import Result, column, result_type, scalar
from visprism.table.shapes import BlockMatrix

FEWEST_GROUPS = 5  # of batches, for an interval of the block structure
_NULL_QUANTILE = 0.975
_NEAR_NULL = 0.05  # fraction of pairs below the null's quantile that makes a finding


@result_type("similarity")
class Similarity(BlockMatrix):
    """CKA of pairs of blocks; one row for each ordered pair."""

    value_name: ClassVar[str] = "cka"

    cka: np.ndarray = column(
        "CKA",
        "",
        "debiased: 1 for equal features, about 0 for unrelated ones; 0 if not defined",
    )
    cka_error: np.ndarray = column(
        "Standard error of CKA", "", "over batches, by the delta method; NaN for one batch"
    )
    biased: np.ndarray = column(
        "Biased CKA", "", "0 to 1, and above 0 for unrelated features; 0 if not defined"
    )
    biased_error: np.ndarray = column(
        "Standard error of biased CKA",
        "",
        "over batches, by the delta method; NaN for one batch",
    )
    null: np.ndarray = column(
        "CKA of shuffled images",
        "",
        "permutation null: debiased CKA with the images of the other block shuffled",
    )
    defined: np.ndarray = column(
        "Defined", "", "False where a block's features are the same for all images"
    )
    kernel: str = scalar("Kernel", "", "'linear' or 'rbf'", default="linear")
    batches: int = scalar("Batches", "", "number of batches that were counted", default=0)
    batch_size: float = scalar(
        "Batch size", "", "mean number of images of a batch", default=0.0
    )
    other_model: str = scalar(
        "Other model", "", "whose block the other is; empty if it is the same model", default=""
    )
    structure_error: float = scalar(
        "Standard error of the block structure",
        "",
        "of its score, by the jackknife over groups of batches",
        default=np.nan,
    )
    groups: int = scalar("Groups", "", "groups of batches of the jackknife", default=0)

    @property
    def units(self) -> int:
        """Number of batches; 1, which has no interval, for fewer than 5."""
        return self.batches if self.batches >= FEWEST_GROUPS else 1

    @property
    def units_text(self) -> str:
        """What the intervals are taken over: ``8 batches``."""
        return f"{self.batches} batches"

    def __repr__(self) -> str:
        """Both models, of which the provenance names the first alone."""
        models = " and ".join(filter(None, (self.provenance.model, self.other_model)))
        return f"<Similarity{f' of {models}' if models else ''}: {len(self)} rows>"

    def findings(self) -> tuple[Finding, ...]:
        """Mean over pairs, the largest of them, and how many are near the permutation null."""
        pairs = np.flatnonzero(self._different_pairs())
        if not len(pairs):
            return ()
        cka = self.cka[pairs]
        most = pairs[np.argmax(cka)]
        largest = self._interval(most)
        findings = [
            Finding(
                f"debiased CKA, mean over {len(pairs)} pairs of "
                f"{'blocks of two models' if self.other_model else 'different blocks'}: "
                f"{cka.mean():.2f}; largest of them {largest} "
                f"({self.block[most]}, {self.other[most]}; over {self.batches} batches, "
                f"{images_text(self.provenance.images, self.provenance.split)}"
                f"{selection_text(len(pairs) if '[' in largest else 1)})"
            )
        ]
        null = self.null[pairs]
        if np.isfinite(null).all():
            bound = float(np.quantile(null, _NULL_QUANTILE))
            near = int((cka <= bound).sum())
            if near > _NEAR_NULL * len(pairs):
                findings.append(
                    Finding(
                        f"CKA of {near} of {len(pairs)} pairs is not above that of shuffled "
                        f"images ({_NULL_QUANTILE:.1%} quantile over pairs: {bound:.2g})",
                        "VP104",
                    )
                )
        return tuple(findings)

    def answers(self) -> tuple[Answer, ...]:
        """Of two models, the mean over pairs of blocks with the most similar pair."""
        pairs = np.flatnonzero(self._different_pairs())
        if not self.other_model or not len(pairs):
            return ()
        most = pairs[np.argmax(self.cka[pairs])]
        return (
            Answer(
                question=questions.SIMILARITY.text,
                quantity="debiased CKA, mean over pairs of blocks",
                value=float(self.cka[pairs].mean()),
                missing="pairs share blocks and images",
                reading=f"largest of {len(pairs)} pairs {self.cka[most]:.3g} "
                f"({self.block[most]}, {self.other[most]})",
            ),
        )

    def _different_pairs(self) -> Bool[np.ndarray, "rows"]:
        """Each unordered pair of different blocks once; of two models every pair."""
        if self.other_model:
            return self.defined.astype(bool)
        place = {name: i for i, name in enumerate(dict.fromkeys(self.block.tolist()))}
        first, other = (
            np.array([place.get(name, -1) for name in names.tolist()])
            for names in (self.block, self.other)
        )
        return self.defined.astype(bool) & (first < other)

    def block_structure(self) -> "BlockStructure":
        """How far the stages of a model show in its CKA.

        The score is the mean, over pairs of different blocks in one stage, of their CKA less
        the mean CKA of the pairs in two stages that lie as many blocks apart; distances at
        which only one of the two occurs are left out. It is 1 where CKA is 1 within stages and
        0 between, and 0 where CKA depends on the distance alone. Blocks whose CKA is not
        defined are left out, and so is the stem, which is a separate stage.
        """
        if self.other_model:
            raise InputError(
                "similarity must be of one model for its block structure, got that of two. "
                "Observe one model with CKAProbe."
            )
        counted = self.select(
            self.defined & (self.kind != "stem") & (self.other_kind != "stem")
        )
        place = {name: i for i, name in enumerate(dict.fromkeys(self.block.tolist()))}
        first = np.array([place[name] for name in counted.block.tolist()], dtype=int)
        other = np.array([place[name] for name in counted.other.tolist()], dtype=int)
        pairs = counted.select(other > first)
        apart = (other - first)[other > first]
        within = pairs.stage == pairs.other_stage
        expected = _mean_at(apart, pairs.cka, np.ones_like(within))[apart]
        stages = np.unique(counted.stage).tolist()
        rows = [(s, t) for s in stages for t in stages if s <= t]
        chosen = [(pairs.stage == s) & (pairs.other_stage == t) for s, t in rows]
        cka = np.array([_mean(pairs.cka[c]) for c in chosen], dtype=float)
        at_distance = np.array([_mean(expected[c]) for c in chosen], dtype=float)
        return BlockStructure(
            stage=np.array([s for s, _ in rows], dtype=int),
            other_stage=np.array([t for _, t in rows], dtype=int),
            pairs=np.array([c.sum() for c in chosen], dtype=int),
            cka=cka,
            expected=at_distance,
            excess=cka - at_distance,
            score=_score(apart, pairs.cka, within),
            score_error=self.structure_error,
            groups=self.groups,
            provenance=self.provenance,
        )


@result_type("block-structure")
class BlockStructure(Result):
    """CKA within and between the stages of one model; one row for each pair of stages."""

    stage: np.ndarray = column("Stage", "", "1 for the first after the stem")
    other_stage: np.ndarray = column("Other stage", "", "the same stage or a later one")
    pairs: np.ndarray = column(
        "Pairs of blocks", "", "number of pairs of different blocks, one in each stage"
    )
    cka: np.ndarray = column(
        "Mean CKA", "", "debiased, mean of these pairs; NaN where a stage has only one block"
    )
    expected: np.ndarray = column(
        "Mean CKA at equal distance", "", "of all pairs of the model that are as far apart"
    )
    excess: np.ndarray = column("Excess CKA", "", "mean CKA minus that at equal distance")
    score: float = scalar(
        "Block structure",
        "",
        "CKA within stages minus between stages, at equal distance; NaN if not available",
    )
    score_error: float = scalar(
        "Standard error of the block structure",
        "",
        "by the jackknife over groups of batches",
        default=np.nan,
    )
    groups: int = scalar("Groups", "", "groups of batches of the jackknife", default=0)

    def interval(self) -> tuple[float, float]:
        """95% interval of the score over batches; NaN for fewer than 5 groups of batches."""
        if self.groups < FEWEST_GROUPS or not np.isfinite(self.score_error):
            return float("nan"), float("nan")
        margin = t_quantile(self.groups) * self.score_error
        return self.score - margin, self.score + margin

    def findings(self) -> tuple[Finding, ...]:
        """The score with its interval."""
        stages = len(np.unique(self.stage))
        if stages < 2:
            return (Finding("the model has one stage, so it has no block structure"),)
        if not np.isfinite(self.score):
            return (
                Finding(
                    f"block structure is not available: no block of the {stages} stages has "
                    "another in its stage and one at the same distance in another stage"
                ),
            )
        low, high = self.interval()
        text = f"block structure {self.score:+.3f}"
        if not np.isfinite(low):
            reason = f"no interval: at least {FEWEST_GROUPS} batches are required"
            return (Finding(f"{text} (CKA within minus between stages; {reason})"),)
        text += f" [{low:+.3f}, {high:+.3f}]"
        if low <= 0 <= high:
            verdict = "not significant"
        else:
            verdict = f"CKA is {'higher' if low > 0 else 'lower'} within stages than between"
            above, of = self._stages_above()
            verdict += f", above that at equal distance in {above} of {of} stages"
        return (
            Finding(
                f"{text} (CKA within minus between {stages} stages, at equal distance): "
                f"{verdict}; interval over {self.groups} groups of batches"
            ),
        )

    def answers(self) -> tuple[Answer, ...]:
        """The score, by which claim C9 is judged."""
        if not np.isfinite(self.score):
            return ()
        low, high = self.interval()
        verdict = "supports" if low > 0 else "contradicts" if high < 0 else "undecided"
        above, stages = self._stages_above()
        mixed = verdict == "supports" and 2 * above <= stages
        return (
            Answer(
                question=questions.BLOCK_STRUCTURE.text,
                quantity="block structure: CKA within minus between stages, at equal distance",
                value=self.score,
                low=low,
                high=high,
                over="batches",
                claim="C9",
                verdict="undecided" if mixed else verdict,
                reading=f"undecided (in {above} of {stages} stages)" if mixed else "",
            ),
        )

    def _stages_above(self) -> tuple[int, int]:
        """Number of stages whose mean CKA exceeds that at equal distance, and of stages."""
        excess = self.excess[(self.stage == self.other_stage) & np.isfinite(self.excess)]
        return int((excess > 0).sum()), len(excess)


def structure_score(
    cka: Float[np.ndarray, "m m"], place: Int[np.ndarray, "m"], stage: Int[np.ndarray, "m"]
) -> float:
    """Block structure of blocks at these places of the forward order, in these stages."""
    first, other = np.triu_indices(len(place), k=1)
    within = stage[first] == stage[other]
    return _score(place[other] - place[first], cka[first, other], within)


def _score(
    apart: Int[np.ndarray, "p"], cka: Float[np.ndarray, "p"], within: Bool[np.ndarray, "p"]
) -> float:
    """Mean CKA of pairs within a stage, minus that of pairs between stages as far apart."""
    contrast = cka[within] - _mean_at(apart, cka, ~within)[apart[within]]
    return _mean(contrast[np.isfinite(contrast)])


def _mean_at(
    apart: Int[np.ndarray, "p"], cka: Float[np.ndarray, "p"], chosen: Bool[np.ndarray, "p"]
) -> Float[np.ndarray, "d"]:
    """Mean CKA of the chosen pairs by distance; NaN where there is none."""
    longest = apart.max(initial=0) + 1
    count = np.bincount(apart[chosen], minlength=longest)
    total = np.bincount(apart[chosen], weights=cka[chosen], minlength=longest)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _mean(values: Float[np.ndarray, "q"]) -> float:
    return float(values.mean()) if len(values) else float("nan")
