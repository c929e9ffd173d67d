"""SortedByConfidence outcomes: images from the surest to the least sure, and weighted sums along them.

Every metric is a ratio of sums over the images that are num_above than something. With a weight
for each image, how often a bootstrap resample has drawn it, one computation gives the metric
and its resamples.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from visprism.core.rng import stream
from visprism.measure.outputs.outcomes import Outcomes

_CHUNK = 500_000  # weights of resamples that are in memory at once

Weights = Float[Tensor, "r n"]


@dataclass(frozen=True)
class SortedByConfidence:
    """Columns of `Outcomes` in the order of falling confidence, as tensors."""

    confidence: Float[Tensor, " n"]
    values: Float[Tensor, "n 4"]  # correct, top5, nll, brier
    target: np.ndarray
    predicted: np.ndarray
    classes: int
    tied: Tensor  # places of images that are not alone in being so sure,
    first: Tensor  # for each the place of the first that is,
    end: Tensor  # and the place behind the last

    @classmethod
    def of(cls, outcomes: Outcomes) -> "SortedByConfidence":
        """The outcomes, sorted."""
        order = np.argsort(-outcomes.confidence, kind="stable")
        confidence = outcomes.confidence[order]
        begins = np.flatnonzero(np.diff(confidence, prepend=np.inf))
        sizes = np.diff(begins, append=len(order))
        tied = np.flatnonzero(np.repeat(sizes, sizes) > 1)
        names = ("correct", "top5", "nll", "brier")
        values = np.stack([getattr(outcomes, name)[order] for name in names], axis=1)
        return cls(
            confidence=torch.from_numpy(confidence.astype(np.float64)),
            values=torch.from_numpy(values.astype(np.float64)),
            target=outcomes.target[order],
            predicted=outcomes.predicted[order],
            classes=outcomes.classes,
            tied=torch.from_numpy(tied),
            first=torch.from_numpy(np.repeat(begins, sizes)[tied]),
            end=torch.from_numpy(np.repeat(begins + sizes, sizes)[tied]),
        )

    def num_above(self, cutoffs: Sequence[float]) -> Tensor:
        """How many images have a confidence above each cut-off.

        Both in float32, in which confidences are: one that is written 0.9 is not above 0.9.
        """
        rising = self.confidence.flip(0).float()
        upto = torch.searchsorted(rising, torch.tensor(cutoffs).float(), right=True)
        return len(rising) - upto

    def __len__(self) -> int:
        """Number of images."""
        return len(self.confidence)


@dataclass(frozen=True)
class CumulativeSums:
    """Sums over the 0, 1, 2, ..., n surest images; one row for each set of weights."""

    count: Float[Tensor, "r m"]
    confidence: Float[Tensor, "r m"]
    correct: Float[Tensor, "r m"]

    @classmethod
    def of(cls, ranked: SortedByConfidence, weights: Weights) -> "CumulativeSums":
        """The running sums.

        Of images that are equally sure each counts as right as all of them on average, so that
        their order does not matter.
        """
        count = _from_zero(weights)
        correct = _from_zero(weights * ranked.values[:, 0])
        if len(ranked.tied):
            low, high = count[:, ranked.first], count[:, ranked.end]
            share = ((count[:, ranked.tied + 1] - low) / (high - low)).nan_to_num(0.0)
            begun, ended = correct[:, ranked.first], correct[:, ranked.end]
            correct[:, ranked.tied + 1] = begun + (ended - begun) * share
        return cls(count, _from_zero(weights * ranked.confidence), correct)

    def at(self, places: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Count, confidence and correct of so many of the surest images, as columns."""
        return self.count[:, places], self.confidence[:, places], self.correct[:, places]

    def at_mass(self, mass: Float[Tensor, "r e"]) -> tuple[Tensor, Tensor]:
        """Confidence and correct of the surest images that weigh `mass`; one may be cut."""
        after = torch.searchsorted(self.count, mass.contiguous()).clamp(
            1, self.count.shape[1] - 1
        )
        low, high = self.count.gather(1, after - 1), self.count.gather(1, after)
        part = ((mass - low) / (high - low)).nan_to_num(0.0)
        found = []
        for sums in (self.confidence, self.correct):
            begun = sums.gather(1, after - 1)
            found.append(begun + part * (sums.gather(1, after) - begun))
        return found[0], found[1]


def resampled(images: int, resamples: int, seed: int) -> Iterator[Weights]:
    """How often each image is drawn when as many are drawn with replacement; some at a time."""
    generator = stream(seed, "bootstrap")
    rows = max(1, _CHUNK // images)
    for start in range(0, resamples, rows):
        number = min(rows, resamples - start)
        weights = torch.empty(number, images, dtype=torch.float64)
        for row in weights:
            drawn = torch.randint(images, (images,), generator=generator)
            row.copy_(torch.bincount(drawn, minlength=images))
        yield weights


def _from_zero(values: Weights) -> Float[Tensor, "r m"]:
    sums = torch.zeros(len(values), values.shape[1] + 1, dtype=torch.float64)
    torch.cumsum(values, 1, out=sums[:, 1:])
    return sums
