"""Outcomes sorted by confidence, and weighted cumulative sums along that order.

Every metric is a ratio of sums over the images above some confidence. With a weight for each
image, how often it occurs in a bootstrap resample, one computation gives the metric and its
resamples.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from visprism.results.predictions import Outcomes

Weights = Float[Tensor, "r n"]


@dataclass(frozen=True)
class SortedByConfidence:
    """Columns of `Outcomes` in descending order of the confidence, as tensors."""

    confidence: Float[Tensor, " n"]
    values: Float[Tensor, "n 4"]  # correct, top5, nll, brier
    target: np.ndarray
    predicted: np.ndarray
    classes: int
    order: Tensor  # index of each image in the data
    tied: Tensor  # positions of images that share their confidence with others,
    first: Tensor  # for each the position of the first with this confidence,
    end: Tensor  # and the position after the last

    @classmethod
    def of(cls, outcomes: Outcomes) -> "SortedByConfidence":
        """The outcomes, sorted."""
        order = np.argsort(-outcomes.confidence, kind="stable")
        confidence = outcomes.confidence[order]
        starts = np.flatnonzero(np.diff(confidence, prepend=np.inf))
        sizes = np.diff(starts, append=len(order))
        tied = np.flatnonzero(np.repeat(sizes, sizes) > 1)
        names = ("correct", "top5", "nll", "brier")
        values = np.stack([getattr(outcomes, name)[order] for name in names], axis=1)
        return cls(
            confidence=torch.from_numpy(confidence.astype(np.float64)),
            values=torch.from_numpy(values.astype(np.float64)),
            target=outcomes.target[order],
            predicted=outcomes.predicted[order],
            classes=outcomes.classes,
            order=torch.from_numpy(order),
            tied=torch.from_numpy(tied),
            first=torch.from_numpy(np.repeat(starts, sizes)[tied]),
            end=torch.from_numpy(np.repeat(starts + sizes, sizes)[tied]),
        )

    def in_order(self, counts: Float[np.ndarray, "r n"]) -> Weights:
        """Counts of images in the order of the data, as weights in the order of confidence."""
        return torch.from_numpy(counts)[:, self.order]

    def num_above(self, cutoffs: Sequence[float]) -> Tensor:
        """Number of images with a confidence above each cut-off.

        Compared in float32, in which confidences are stored: 0.9 is not above 0.9.
        """
        ascending = self.confidence.flip(0).float()
        not_above = torch.searchsorted(ascending, torch.tensor(cutoffs).float(), right=True)
        return len(ascending) - not_above

    def __len__(self) -> int:
        """Number of images."""
        return len(self.confidence)


@dataclass(frozen=True)
class CumulativeSums:
    """Sums over the 0, 1, 2, ..., n most confident images; one row per set of weights."""

    count: Float[Tensor, "r m"]
    confidence: Float[Tensor, "r m"]
    correct: Float[Tensor, "r m"]

    @classmethod
    def of(cls, ranked: SortedByConfidence, weights: Weights) -> "CumulativeSums":
        """The cumulative sums.

        Images of equal confidence each count with their mean correctness, so that their order
        does not matter.
        """
        count = _from_zero(weights)
        correct = _from_zero(weights * ranked.values[:, 0])
        if len(ranked.tied):
            low, high = count[:, ranked.first], count[:, ranked.end]
            fraction = ((count[:, ranked.tied + 1] - low) / (high - low)).nan_to_num(0.0)
            start, end = correct[:, ranked.first], correct[:, ranked.end]
            correct[:, ranked.tied + 1] = start + (end - start) * fraction
        return cls(count, _from_zero(weights * ranked.confidence), correct)

    def at(self, places: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Count, confidence and correct of so many of the most confident images."""
        return self.count[:, places], self.confidence[:, places], self.correct[:, places]

    def at_mass(self, mass: Float[Tensor, "r e"]) -> tuple[Tensor, Tensor]:
        """Confidence and correct of the most confident images of weight `mass`."""
        after = torch.searchsorted(self.count, mass.contiguous()).clamp(
            1, self.count.shape[1] - 1
        )
        low, high = self.count.gather(1, after - 1), self.count.gather(1, after)
        fraction = ((mass - low) / (high - low)).nan_to_num(0.0)
        confidence, correct = (
            torch.lerp(sums.gather(1, after - 1), sums.gather(1, after), fraction)
            for sums in (self.confidence, self.correct)
        )
        return confidence, correct


def _from_zero(values: Weights) -> Float[Tensor, "r m"]:
    sums = torch.zeros(len(values), values.shape[1] + 1, dtype=torch.float64)
    torch.cumsum(values, 1, out=sums[:, 1:])
    return sums
