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
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Float32, Int

from visprism.core.statistics import NORMAL_95
from visprism.estimates.estimated import Number

FEWEST_IMAGES = 100  # for an interval
_HALVINGS = 32  # of the range of h: to 2e-10 of it
_FAR_BELOW = 1.5  # standard deviations; below 1.96, where the interval would be 0 to 0
_BEYOND = 1 + 1e-9  # the rounding of a gap that is 0
_ROUNDING = 1e-9  # images; a smaller gap of a bin is 0


@dataclass(frozen=True)
class Bins:
    """Images, sums of confidences and of their squares, correct images; one row per sample."""

    images: Float[np.ndarray, "r m"]
    confidence: Float[np.ndarray, "r m"]
    squares: Float[np.ndarray, "r m"]
    correct: Float[np.ndarray, "r m"]

    @classmethod
    def of(
        cls,
        confidence: Float32[np.ndarray, " n"],
        correct: Bool[np.ndarray, " n"],
        bins: int,
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
        return np.abs(self.correct - self.confidence).sum(1) / self.images.sum(1)

    @cached_property
    def filled(self) -> Float[np.ndarray, "r m"]:
        """Number of images of each bin, and 1 of an empty one, to divide by."""
        return np.maximum(self.images, 1)

    @cached_property
    def mean_confidence(self) -> Float[np.ndarray, "r m"]:
        """Mean confidence of each bin; 0 of an empty one."""
        return self.confidence / self.filled

    @cached_property
    def gap(self) -> Float[np.ndarray, "r m"]:
        """Accuracy minus mean confidence of each bin."""
        return self.correct / self.filled - self.mean_confidence

    @cached_property
    def deviations(self) -> Float[np.ndarray, "r m"]:
        """Standard deviation of one image in each bin."""
        margin = 0.5 / (self.images + 1)
        inside = np.clip(self.mean_confidence, margin, 1 - margin)
        return np.sqrt(inside * (1 - inside))

    @property
    def ends(self) -> tuple[Float[np.ndarray, " r"], Float[np.ndarray, " r"]]:
        """The h at which every accuracy is 0 or 1, and the one at which all are calibrated."""
        gap = np.abs(self.correct - self.confidence) / self.filled
        return -(1 / self.deviations).max(1), _BEYOND * (gap / self.deviations).max(1)

    def accuracies(self, h: Float[np.ndarray, " r"]) -> Float[np.ndarray, "r m"]:
        """Accuracy of the model in each bin at h."""
        confidence, gap, deviation = self.mean_confidence, self.gap, self.deviations
        size = np.maximum(np.abs(gap) - h[:, None] * deviation, 0)
        either = np.abs(gap) <= 0.5 * deviation / np.sqrt(self.filled)
        inwards = np.where(confidence > 0.5, -1.0, 1.0)
        sign = np.where(either & (h[:, None] < 0), inwards, np.sign(gap))
        return np.clip(confidence + sign * size, 0, 1)

    def expected(
        self, h: Float[np.ndarray, " r"]
    ) -> tuple[Float[np.ndarray, " r"], Float[np.ndarray, " r"], Float[np.ndarray, " r"]]:
        """Mean and standard deviation of the sample's ECE, and the model's ECE, at h."""
        n, total = self.images, self.images.sum(1)
        accuracy = self.accuracies(h)
        mean, variance = _absolute_deviation(n, accuracy, self.confidence)
        model = (n * np.abs(accuracy - self.mean_confidence)).sum(1) / total
        return mean.sum(1) / total, np.sqrt(variance.sum(1)) / total, model

    def threshold(self, deviations: float | Float[np.ndarray, " r"]) -> Float[np.ndarray, " r"]:
        """The h at which mean + `deviations` · deviation is the sample's ECE.

        It is the largest h where already a calibrated model reaches the sample's ECE.
        """
        smallest, largest = self.ends
        calibrated, deviation, _model = self.expected(largest)
        # An ECE far below a calibrated model's would bound the model's at 0.
        least = np.where(np.less(deviations, 0), calibrated - _FAR_BELOW * deviation, 0)
        ece = np.maximum(self.ece, least)
        reached = calibrated + deviations * deviation >= ece
        # A model that is always right with confidence 1 has an ECE of 0 in every sample.
        reached &= np.greater_equal(deviations, 0) | (deviation > 0)
        low, high = smallest, largest
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            mean, deviation, _model = self.expected(middle)
            below = mean + deviations * deviation < ece
            low, high = np.where(below, low, middle), np.where(below, middle, high)
        return np.where(reached, largest, low)

    def confidence_error(self, h: Float[np.ndarray, " r"]) -> Float[np.ndarray, " r"]:
        """Standard error of the model's ECE at h that is due to the sample's confidences."""
        n, total = self.images, self.images.sum(1)
        mean = self.mean_confidence
        gap = np.abs(self.accuracies(h) - mean)
        within = np.maximum(self.squares / self.filled - mean**2, 0) * (gap * n > _ROUNDING)
        center = (n * gap).sum(1, keepdims=True) / total[:, None]
        variance = (n * ((gap - center) ** 2 + within)).sum(1) / np.maximum(total - 1, 1)
        return np.sqrt(variance / total)

    def intervals(
        self,
    ) -> tuple[Float[np.ndarray, " r"], Float[np.ndarray, " r"], Float[np.ndarray, " r"]]:
        """The debiased ECE and both ends of its 95% interval."""
        targets = np.array([0.0, NORMAL_95, -NORMAL_95]).repeat(len(self.images))
        sums = (self.images, self.confidence, self.squares, self.correct)
        thrice = Bins(*(np.tile(values, (3, 1)) for values in sums))
        h = thrice.threshold(targets)
        # The model's ECE; 0 where a calibrated one reaches the sample's.
        debiased, low, high = thrice.expected(h)[2].reshape(3, -1)
        margin = NORMAL_95 * self.confidence_error(h[: len(self.images)])
        below, above = np.hypot(debiased - low, margin), np.hypot(high - debiased, margin)
        return debiased, np.maximum(debiased - below, 0), debiased + above


@dataclass(frozen=True)
class CalibrationError:
    """ECE of a sample, and what it says of the model."""

    value: float  # of the sample
    debiased: float  # of the model
    low: float  # 95% interval of the model's ECE; NaN where there is none
    high: float
    calibrated: float  # expected ECE of a calibrated model in as many images
    by_image: Float[np.ndarray, " n"]  # the debiased ECE plus the influence of each image

    @property
    def number(self) -> Number:
        """The debiased ECE with its interval."""
        missing = "" if np.isfinite(self.low) else f"fewer than {FEWEST_IMAGES} images"
        return Number(self.debiased, self.low, self.high, self.by_image, missing)


def calibration_error(
    confidence: Float32[np.ndarray, " n"], correct: Bool[np.ndarray, " n"], *, bins: int = 10
) -> CalibrationError:
    """ECE with its debiased value and 95% interval; no resampling.

    The interval is NaN for fewer than 100 images. It needs no minimum of wrong predictions: a
    rule on these would leave out the samples in which the model happens to err rarely, and the
    others have too large an error on average.

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
    if len(correct) < FEWEST_IMAGES:
        low = high = float("nan")
    contributions = _contributions(
        binned, _bin_numbers(confidence, bins), correct - confidence.astype(np.float64)
    )
    return CalibrationError(
        value=float(binned.ece[0]),
        debiased=debiased,
        low=low,
        high=high,
        calibrated=float(binned.expected(binned.ends[1])[0][0]),
        by_image=debiased + contributions - contributions.mean(),
    )


def _contributions(
    binned: Bins,
    number: Int[np.ndarray, " n"],
    difference: Float[np.ndarray, " n"],
) -> Float[np.ndarray, " n"]:
    """Contribution of each image to the debiased ECE, up to its mean.

    It is sign(g_b) (correct - confidence) with g_b the debiased gap of the image's bin, and 0
    in a bin that counts as calibrated. Their correlation between two models is the correlation
    of the two debiased ECEs.
    """
    gap = binned.accuracies(binned.threshold(0.0)) * binned.images - binned.confidence
    sign = np.where(np.abs(gap[0]) > _ROUNDING, np.sign(gap[0]), 0.0)
    return sign[number] * difference


def _bin_numbers(confidence: Float32[np.ndarray, " n"], bins: int) -> Int[np.ndarray, " n"]:
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
