"""Outcomes sorted by confidence, and cumulative sums along that order.

Every metric is a ratio of sums over the images above some confidence.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from visprism.results.predictions import Outcomes


@dataclass(frozen=True)
class SortedByConfidence:
    """Columns of `Outcomes` in descending order of the confidence."""

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
