"""Expected calibration error of a sample: its bias, and an interval of the error of the model.

The ECE of n images is sum_b |c_b - k_b| / n over bins b, with k_b the number of correct images
and c_b the sum of confidences. Absolute values do not average out: with few images, the ECE of
a calibrated model is well above 0. Let the accuracy of a bin be

    p_b(h) = conf_b + sign(g_b) max(|g_b| - h s_b, 0),  g_b = acc_b - conf_b,

as observed at h = 0, calibrated at a large h. The standard deviation of one image is
s_b = sqrt(c (1 - c)), with c the mean confidence, but at least 1 / (2 (n_b + 1)) from 0 and 1,
so that s_b is above 0 for confidences of 1. A bin whose gap is small compared with others' gaps
becomes calibrated first, so that bins without a calibration error do not add to the model's
error. With k_b binomial, the mean and the variance of the ECE at h are exact. The
debiased ECE is the model's ECE at the h whose expected ECE is the observed one. The interval
holds each h at which the observed ECE is within 1.96 standard deviations of the expected one.

A gap within half a standard error of 0 may have the other sign in the model. For h < 0, beyond
the observed gaps, the accuracy of such a bin lies on the side of 1/2, where it varies most. The
upper end of a sample whose ECE is more than 1.5 standard deviations below the expected one of a
calibrated model is the upper end of a sample 1.5 standard deviations below.

All of this holds for the confidences of the sample. Confidences of other images differ, and so
does the ECE: a model of accuracy 1 has an ECE of 1 - mean confidence, with the standard error
of the mean confidence. With d the debiased ECE and [l, u] the interval above, the interval is

    d - sqrt((d - l)^2 + (1.96 e)^2) to d + sqrt((u - d)^2 + (1.96 e)^2),

not below 0. Here n e^2 is the variance of the debiased |g_b| between images, plus the variance
of the confidences within the bins that do not count as calibrated.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Float32, Int

from visprism.core.statistics import NORMAL_95
from visprism.estimates.estimated import Number

FEWEST_IMAGES = 100  # for an interval
_HALVINGS = 32  # of the range of h: to 2e-10 of it
_FAR_BELOW = 1.5  # standard deviations; below 1.96, where the interval would be 0 to 0
_BEYOND = 1 + 1e-9  # the rounding of a gap that is 0
_ROUNDING = 1e-9  # images; a smaller gap of a bin is 0


@dataclass
class Bins:
    """Images, sums of confidences and of their squares, correct images; one row per sample."""

    images: Float[np.ndarray, "r m"]
    confidence: Float[np.ndarray, "r m"]
    squares: Float[np.ndarray, "r m"]
    correct: Float[np.ndarray, "r m"]

    def __post_init__(self) -> None:
        self.total = self.images.sum(1)
        self.filled = np.maximum(self.images, 1)  # to divide by
        self.mean = self.confidence / self.filled  # 0 of an empty bin
        self.gap = self.correct / self.filled - self.mean
        margin = 0.5 / (self.images + 1)
        inside = np.clip(self.mean, margin, 1 - margin)
        self.deviation = np.sqrt(inside * (1 - inside))  # of one image

    @classmethod
    def of(
        cls, confidence: Float32[np.ndarray, " n"], correct: Bool[np.ndarray, " n"], bins: int
    ) -> "Bins":
        """Bins (i/m, (i+1)/m] of one sample."""
        number, values = _bin_numbers(confidence, bins), confidence.astype(np.float64)
        sums = [
            np.bincount(number, weights, minlength=bins).astype(np.float64)[None]
            for weights in (None, values, values**2, correct.astype(np.float64))
        ]
        return cls(*sums)

    @property
    def ece(self) -> Float[np.ndarray, " r"]:
        """Sum over bins of |accuracy - mean confidence|, weighted by their images."""
        return np.abs(self.correct - self.confidence).sum(1) / self.total

    @property
    def calibrated(self) -> Float[np.ndarray, " r"]:
        """The h at which every bin is calibrated."""
        return _BEYOND * (np.abs(self.gap) / self.deviation).max(1)

    def gaps(self, h: Float[np.ndarray, " r"]) -> Float[np.ndarray, "r m"]:
        """Accuracy of the model minus mean confidence in each bin at h; 0 where rounded."""
        size = np.maximum(np.abs(self.gap) - h[:, None] * self.deviation, 0)
        either = np.abs(self.gap) <= 0.5 * self.deviation / np.sqrt(self.filled)
        inwards = np.where(self.mean > 0.5, -1.0, 1.0)
        sign = np.where(either & (h[:, None] < 0), inwards, np.sign(self.gap))
        gap = np.clip(self.mean + sign * size, 0, 1) - self.mean
        return np.where(np.abs(gap) * self.images > _ROUNDING, gap, 0.0)

    def model_ece(self, h: Float[np.ndarray, " r"]) -> Float[np.ndarray, " r"]:
        """ECE of the model at h."""
        return (self.images * np.abs(self.gaps(h))).sum(1) / self.total

    def expected(
        self, h: Float[np.ndarray, " r"]
    ) -> tuple[Float[np.ndarray, " r"], Float[np.ndarray, " r"]]:
        """Mean and standard deviation of the sample's ECE at h."""
        accuracy = self.mean + self.gaps(h)
        mean, variance = _absolute_deviation(self.images, accuracy, self.confidence)
        return mean.sum(1) / self.total, np.sqrt(variance.sum(1)) / self.total

    def threshold(self, deviations: float) -> Float[np.ndarray, " r"]:
        """The h at which mean + `deviations` · deviation is the sample's ECE.

        It is the largest h where already a calibrated model reaches the sample's ECE.
        """
        ece, (mean, deviation) = self.ece, self.expected(self.calibrated)
        if deviations < 0:  # an ECE far below a calibrated model's would bound the model's at 0
            ece = np.maximum(ece, mean - _FAR_BELOW * deviation)
        reached = mean + deviations * deviation >= ece
        # A model that is always right with confidence 1 has an ECE of 0 in every sample.
        reached &= (deviation > 0) | (deviations >= 0)
        low, high = -(1 / self.deviation).max(1), self.calibrated
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            mean, deviation = self.expected(middle)
            below = mean + deviations * deviation < ece
            low, high = np.where(below, low, middle), np.where(below, middle, high)
        return np.where(reached, self.calibrated, low)

    def intervals(
        self,
    ) -> tuple[Float[np.ndarray, " r"], Float[np.ndarray, " r"], Float[np.ndarray, " r"]]:
        """The debiased ECE and both ends of its 95% interval."""
        debiased, low, high = (
            self.model_ece(self.threshold(d)) for d in (0.0, NORMAL_95, -NORMAL_95)
        )
        # The error that is due to the sample's confidences.
        gap = np.abs(self.gaps(self.threshold(0.0)))
        within = np.maximum(self.squares / self.filled - self.mean**2, 0) * (gap > 0)
        squares = self.images * ((gap - debiased[:, None]) ** 2 + within)
        variance = squares.sum(1) / np.maximum(self.total - 1, 1)
        margin = NORMAL_95 * np.sqrt(variance / self.total)
        below, above = np.hypot(debiased - low, margin), np.hypot(high - debiased, margin)
        return debiased, np.maximum(debiased - below, 0), debiased + above


@dataclass(frozen=True)
class CalibrationError:
    """ECE of a sample, and what it says of the model."""

    value: float  # of the sample
    debiased: Number  # of the model; by unit, plus the influence of each image
    calibrated: float  # expected ECE of a calibrated model in as many images


def calibration_error(
    confidence: Float32[np.ndarray, " n"], correct: Bool[np.ndarray, " n"], *, bins: int = 10
) -> CalibrationError:
    """ECE with its debiased value and 95% interval; no resampling.

    The interval is NaN for fewer than 100 images. It needs no minimum of wrong predictions: a
    rule on these would leave out the samples in which the model happens to err rarely, and the
    others have too large an error on average.

    By image the debiased ECE is sign(g_b) (correct - confidence), up to its mean, with g_b the
    debiased gap of the image's bin, and 0 in a bin that counts as calibrated. Their correlation
    between two models is the correlation of the two debiased ECEs.

    Args:
        confidence: probability of the predicted class.
        correct: whether it is the target.
        bins: number of bins of equal width.

    Source: Kumar, Liang and Ma (2019), Verified uncertainty calibration, on the bias; Donoho
    and Johnstone (1994), Ideal spatial adaptation by wavelet shrinkage, on soft thresholds;
    Zou and Donner (2008), Construction of confidence limits about effect measures, on the sum
    of two errors.
    """
    binned = Bins.of(confidence, correct, bins)
    debiased, low, high = (ends.item() for ends in binned.intervals())
    few = f"fewer than {FEWEST_IMAGES} images" if len(correct) < FEWEST_IMAGES else ""
    sign = np.sign(binned.gaps(binned.threshold(0.0))[0])
    influence = sign[_bin_numbers(confidence, bins)] * (correct - confidence.astype(np.float64))
    by_image = debiased + influence - influence.mean()
    ends = (np.nan, np.nan) if few else (low, high)
    return CalibrationError(
        value=float(binned.ece[0]),
        debiased=Number(debiased, *ends, by_image, few),
        calibrated=float(binned.expected(binned.calibrated)[0][0]),
    )


def _bin_numbers(confidence: Float32[np.ndarray, " n"], bins: int) -> Int[np.ndarray, " n"]:
    """Number of the bin (i/m, (i+1)/m] of each confidence, compared in float32."""
    edges = (np.arange(1, bins) / bins).astype(np.float32)
    return np.searchsorted(edges, confidence, side="left")


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
