"""Metrics of the confidence, from cumulative sums of outcomes sorted by confidence.

Every metric is a ratio of sums over the images above some confidence.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from visprism.passes.outcomes import Outcomes

Values = dict[tuple[str, float], float]  # by metric and cut-off


@dataclass(frozen=True)
class SortedByConfidence:
    """Columns of `Outcomes` in descending order of the confidence."""

    order: Int[np.ndarray, " n"]  # the images' places in the data
    confidence: Float[np.ndarray, " n"]
    correct: Float[np.ndarray, " n"]
    target: np.ndarray
    predicted: np.ndarray
    starts: Int[np.ndarray, " g"]  # position of the first image of each confidence

    @classmethod
    def of(cls, outcomes: Outcomes) -> "SortedByConfidence":
        """The outcomes, sorted."""
        order = np.argsort(-outcomes.confidence, kind="stable")
        confidence = outcomes.confidence[order]
        return cls(
            order=order,
            confidence=confidence.astype(np.float64),
            correct=outcomes.correct[order].astype(np.float64),
            target=outcomes.target[order],
            predicted=outcomes.predicted[order],
            starts=np.flatnonzero(np.diff(confidence, prepend=np.inf)),
        )

    def mean_of_equals(self, values: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """For each image the mean over all images of its confidence.

        Images of equal confidence have no order: each counts with their mean.
        """
        sizes = np.diff(self.starts, append=len(self))
        return np.repeat(np.add.reduceat(values, self.starts) / sizes, sizes)

    def num_above(self, cutoffs: Sequence[float]) -> Int[np.ndarray, " c"]:
        """Number of images with a confidence above each cut-off.

        Compared in float32, in which confidences are stored: 0.9 is not above 0.9.
        """
        ascending = self.confidence[::-1].astype(np.float32)
        not_above = np.searchsorted(ascending, np.array(cutoffs, np.float32), side="right")
        return len(self) - not_above

    def __len__(self) -> int:
        """Number of images."""
        return len(self.confidence)


@dataclass(frozen=True)
class CumulativeSums:
    """Sums over the 0, 1, 2, ..., n most confident images."""

    confidence: Float[np.ndarray, " m"]
    correct: Float[np.ndarray, " m"]

    @classmethod
    def of(cls, ranked: SortedByConfidence) -> "CumulativeSums":
        """The cumulative sums; images of equal confidence count with their mean."""
        return cls(
            _from_zero(ranked.confidence), _from_zero(ranked.mean_of_equals(ranked.correct))
        )

    def at(
        self, count: Float[np.ndarray, " c"] | Int[np.ndarray, " c"]
    ) -> tuple[Float[np.ndarray, " c"], Float[np.ndarray, " c"]]:
        """Confidence and correct of so many of the most confident images.

        A fraction of an image counts by that fraction.
        """
        counts = np.arange(len(self.correct))
        confidence, correct = (np.interp(count, counts, s) for s in vars(self).values())
        return confidence, correct


def _from_zero(values: Float[np.ndarray, " n"]) -> Float[np.ndarray, " m"]:
    return np.concatenate([[0.0], np.cumsum(values)])


def metrics(outcomes: Outcomes, cutoffs: Sequence[float], bins: int) -> Values:
    """Every metric of `visprism.calibration` but the debiased ECE."""
    ranked = SortedByConfidence.of(outcomes)
    sums, total = CumulativeSums.of(ranked), len(ranked)
    columns = {"accuracy": outcomes.correct, "top5": outcomes.top5}
    columns |= {"nll": outcomes.nll, "brier": outcomes.brier}
    values: Values = {
        (name, np.nan): float(column.mean(dtype=np.float64)) for name, column in columns.items()
    }
    wrong = total - sums.correct[-1]
    counts = ranked.num_above(cutoffs)
    with np.errstate(divide="ignore", invalid="ignore"):  # NaN of no image
        for c, count, correct in zip(cutoffs, counts, sums.at(counts)[1], strict=True):
            values["acc", c] = float(correct / count)
            values["freq", c] = float(count / total)
            values["unc", c] = float((wrong - (count - correct)) / wrong)
            values["iou", c] = _mean_iou(outcomes.classes, ranked, int(count))
    values["mean_iou", np.nan] = _mean_iou(outcomes.classes, ranked, total)
    values |= _calibration(ranked, sums, bins)
    values["aurc", np.nan] = float(aurc_contributions(ranked).mean())
    return values


def aurc_contributions(ranked: SortedByConfidence) -> Float[np.ndarray, " n"]:
    """A value for each image whose mean is the AURC: the AURC plus the image's influence.

    The AURC is the mean over i of the error rate of the i most confident images, or of e_i w_i
    with e_i = 1 for a wrong prediction and w_i = 1 / i + ... + 1 / n. An image also raises the
    coverage of all images below it, so that the value of the i-th most confident one is

        e_i w_i - (e_i / i + ... + e_n / n) + mean of e.

    The spread of the values gives the standard error of the AURC. They are in the order of
    the data; images of equal confidence count with the mean over their orders.

    Source: Geifman et al. (2019), Bias-reduced uncertainty estimation, for the AURC; Jaeckel
    (1972), The infinitesimal jackknife, for the influence.
    """
    wrong = 1 - ranked.correct
    rank = np.arange(1, len(ranked) + 1)
    weight = ranked.mean_of_equals(_sums_to_the_end(1 / rank))
    below = ranked.mean_of_equals(_sums_to_the_end(ranked.mean_of_equals(wrong) / rank))
    return (wrong * weight - below + wrong.mean())[ranked.order.argsort()]


def _sums_to_the_end(values: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    return np.cumsum(values[::-1])[::-1]


def _calibration(ranked: SortedByConfidence, sums: CumulativeSums, bins: int) -> Values:
    total = len(ranked)
    # From the highest bin down; the last one also has a confidence of 0, from rounding.
    edges = np.concatenate([[0], ranked.num_above(edges_of(bins)[1:]), [total]])
    confidence, correct = (np.diff(values) for values in sums.at(edges))
    count, gap = np.diff(edges), np.abs(correct - confidence)
    even_confidence, even_correct = (
        np.diff(values) for values in sums.at(np.linspace(0, total, bins + 1))
    )
    return {
        ("ece", np.nan): float(gap.sum() / total),
        ("signed_ece", np.nan): float((sums.confidence[-1] - sums.correct[-1]) / total),
        ("mce", np.nan): float((gap[count > 0] / count[count > 0]).max()),
        ("adaptive_ece", np.nan): float(np.abs(even_correct - even_confidence).sum() / total),
    }


def _mean_iou(classes: int, ranked: SortedByConfidence, images: int) -> float:
    """Mean over classes of the IoU of target and prediction, of the most confident images."""
    target, predicted = ranked.target[:images], ranked.predicted[:images]
    of_target, of_prediction, of_both = (
        np.bincount(labels, minlength=classes)
        for labels in (target, predicted, target[target == predicted])
    )
    occurs = of_target > 0
    union = (of_target + of_prediction - of_both)[occurs]
    return float((of_both[occurs] / union).mean()) if occurs.any() else np.nan


def edges_of(bins: int) -> list[float]:
    """Upper edges of the bins of the confidence in descending order: 1, ..., 1/m."""
    return [i / bins for i in range(bins, 0, -1)]
