"""Expected calibration error of a sample: its bias, and an interval of the error of the model.

The ECE of n images is sum_b |c_b - k_b| / n over bins b, with k_b the number of correct images
and c_b the sum of confidences. Absolute values do not average out: with few images, the ECE of
a calibrated model is well above 0. Let the accuracy of a bin be

    p_b(t) = conf_b + t (acc_b - conf_b),

from calibrated at t = 0 to as observed at t = 1. With k_b binomial, the mean and the variance
of the ECE at t are exact. The debiased ECE is that of the model at the t whose expected ECE is
the observed one. The interval holds each t at which the observed ECE is within 1.96 standard
deviations of the expected one.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Float32

from visprism.core.statistics import NORMAL_95

_WIDEST = 64.0  # of t: far beyond any model that the sample is compatible with
_HALVINGS = 32


@dataclass(frozen=True)
class Bins:
    """Images, sum of confidences and correct images of each bin; one row for each resample."""

    images: Float[np.ndarray, "r m"]
    confidence: Float[np.ndarray, "r m"]
    correct: Float[np.ndarray, "r m"]

    @classmethod
    def of(
        cls,
        confidence: Float32[np.ndarray, " n"],
        correct: Bool[np.ndarray, " n"],
        bins: int,
        counts: Float[np.ndarray, "r n"] | None = None,
    ) -> "Bins":
        """Bins (i/m, (i+1)/m] of images that count `counts` times, once by default."""
        edges = (np.arange(1, bins) / bins).astype(np.float32)
        member = np.eye(bins)[np.searchsorted(edges, confidence, side="left")]
        counts = np.ones((1, len(confidence))) if counts is None else counts
        values = confidence.astype(np.float64)[:, None]
        return cls(
            counts @ member, counts @ (member * values), counts @ (member * correct[:, None])
        )

    @property
    def ece(self) -> Float[np.ndarray, " r"]:
        """Sum over bins of |accuracy - mean confidence|, weighted by their images."""
        return np.abs(self.correct - self.confidence).sum(1) / self.images.sum(1)

    def expected(
        self, t: Float[np.ndarray, " r"]
    ) -> tuple[Float[np.ndarray, " r"], Float[np.ndarray, " r"], Float[np.ndarray, " r"]]:
        """Mean and standard deviation of the sample's ECE, and the model's ECE, at t."""
        n, total = self.images, self.images.sum(1)
        filled = np.maximum(n, 1)
        confidence = self.confidence / filled
        gap = self.correct / filled - confidence
        accuracy = np.clip(confidence + t[:, None] * gap, 0, 1)
        mean, variance = _absolute_deviation(n, accuracy, self.confidence)
        model = (n * np.abs(accuracy - confidence)).sum(1) / total
        return mean.sum(1) / total, np.sqrt(variance.sum(1)) / total, model

    def solve(self, deviations: float) -> Float[np.ndarray, " r"]:
        """The model's ECE at the t where mean + `deviations` · deviation is the sample's ECE.

        It is 0 where already a calibrated model reaches the sample's ECE.
        """
        ece = self.ece

        def excess(t: Float[np.ndarray, " r"]) -> Float[np.ndarray, " r"]:
            mean, deviation, _ = self.expected(t)
            return mean + deviations * deviation - ece

        low, high = np.zeros(len(ece)), np.full(len(ece), _WIDEST)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            below = excess(middle) < 0
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        model = self.expected(high)[2]
        return np.where(excess(np.zeros(len(ece))) >= 0, 0.0, model)


@dataclass(frozen=True)
class CalibrationError:
    """ECE of a sample, and what it says of the model."""

    value: float  # of the sample
    debiased: float  # of the model
    low: float  # 95 % interval of the model's ECE
    high: float
    calibrated: float  # expected ECE of a calibrated model in as many images


def calibration_error(
    confidence: Float32[np.ndarray, " n"], correct: Bool[np.ndarray, " n"], *, bins: int = 10
) -> CalibrationError:
    """ECE with its debiased value and 95 % interval; no resampling.

    Args:
        confidence: probability of the predicted class.
        correct: whether it is the target.
        bins: number of bins of equal width.

    Source: Kumar, Liang and Ma (2019), Verified uncertainty calibration, on the bias.
    """
    binned = Bins.of(confidence, correct, bins)
    zero = np.zeros(1)
    return CalibrationError(
        value=float(binned.ece[0]),
        debiased=float(binned.solve(0.0)[0]),
        low=float(binned.solve(NORMAL_95)[0]),
        high=float(binned.solve(-NORMAL_95)[0]),
        calibrated=float(binned.expected(zero)[0][0]),
    )


def _absolute_deviation(
    n: Float[np.ndarray, "r m"], p: Float[np.ndarray, "r m"], a: Float[np.ndarray, "r m"]
) -> tuple[Float[np.ndarray, "r m"], Float[np.ndarray, "r m"]]:
    """Mean and variance of |K - a| for a binomial K of n trials with probability p.

    With F_n the distribution function, E|K - a| = np - a + 2 (a F_n(a) - np F_{n-1}(a - 1)).
    """
    from scipy.special import bdtr

    trials = np.maximum(n, 1).astype(np.int64)
    fewer = np.maximum(trials - 1, 1)
    floor = np.floor(np.minimum(a, n))
    below = np.where(n > 0, bdtr(floor, trials, p), 1.0)
    before = np.where(n > 1, bdtr(np.clip(floor - 1, 0, fewer), fewer, p), 1.0)
    before = np.where(floor >= 1, before, 0.0)
    mean = n * p - a + 2 * (a * below - n * p * before)
    variance = n * p * (1 - p) + (n * p - a) ** 2 - mean**2
    return mean, np.maximum(variance, 0)
