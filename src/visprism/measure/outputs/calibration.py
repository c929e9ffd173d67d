"""Calibration: accuracy, losses, and whether the confidence of a model is its accuracy.

Source: Guo et al. (2017), On calibration of modern neural networks; for the cut-offs Park and
Kim (2022), How do vision transformers work?, and its code.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import nan

import numpy as np
from jaxtyping import Float

from visprism.core.errors import InputError
from visprism.core.statistics import mean_interval, wilson
from visprism.measure.outputs.confidence_order import SortedByConfidence
from visprism.measure.outputs.metrics import aurc_contributions, metrics
from visprism.passes.outcomes import outcomes_of
from visprism.passes.predictions import Predictions
from visprism.results.calibration import Calibration
from visprism.results.calibration_error import calibration_error
from visprism.results.differences import enough_outcomes
from visprism.results.predictions import Outcomes

Ends = tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]


def calibration(
    predictions: Predictions | Outcomes,
    *,
    cutoff: float | Sequence[float] = 0.9,
    bins: int = 10,
) -> Calibration:
    """Accuracy, NLL, ECE and every other metric of predictions, with intervals over images.

    With p the probabilities of an image, t its target, f = max p its confidence:

    - accuracy; top5; nll, mean of -log p_t; brier, mean of the sum over classes of (p - 1_t)^2.
    - at a cut-off c: acc, the accuracy where f > c; freq, the fraction of images with f > c;
      unc, the fraction of wrong predictions with f <= c; iou, mean_iou of the images with
      f > c.
    - mean_iou: correct images of a class over those that are of it or predicted as it, mean
      over the classes that occur as targets.
    - ece, over bins (i/m, (i+1)/m] of f: the sum over bins of |correct images - sum of f| over
      all images; debiased_ece, see `visprism.results.calibration_error`; signed_ece, mean of f
      minus accuracy, above 0 for an overconfident model; mce, the largest |accuracy - mean of
      f| of a bin with images; adaptive_ece, the ece of bins with equally many images, where an
      image on an edge counts in parts.
    - aurc: mean over i of the error rate of the i most confident images.

    Intervals: Wilson's for fractions of images; that of a mean of skewed values for nll, brier,
    signed_ece (`visprism.core.statistics.mean_interval`) and for aurc, whose values by image
    are its linearization, from 5 correct and 5 wrong predictions on; that of the debiased ECE
    by inversion of a test; none for ece, mce, adaptive_ece, iou and mean_iou, which are biased
    in few images.

    Costs one pass over the logits.

    Args:
        predictions: of a data set, or their outcomes.
        cutoff: one or several confidences, each at least 0 and below 1.
        bins: number of bins, m.

    Source: Guo et al. (2017), eq. 3 and 5; Nguyen and O'Connor (2015), Posterior calibration
    and exploratory analysis, for equal counts; Geifman et al. (2019), Bias-reduced uncertainty
    estimation, for the aurc; Kumar et al. (2019), Verified uncertainty calibration, for the
    bias.
    """
    cutoffs = [float(c) for c in np.atleast_1d(cutoff)]
    check_bins(bins)
    check_cutoffs(cutoffs)
    outcomes = outcomes_of(predictions)
    values = metrics(outcomes, cutoffs, bins)
    names, at = zip(*values, strict=True)
    metric, cutoff_column = np.array(names), np.array(at)
    low, high = _proportions(outcomes, metric, cutoff_column)
    for name, ends in loss_intervals(outcomes).items():
        (row,) = np.flatnonzero(metric == name)
        low[row], high[row] = ends
    error = calibration_error(outcomes.confidence, outcomes.correct, bins=bins)
    return Calibration(
        metric=np.append(metric, "debiased_ece"),
        cutoff=np.append(cutoff_column, np.nan),
        value=np.append(list(values.values()), error.debiased),
        low=np.append(low, error.low),
        high=np.append(high, error.high),
        bins=bins,
        passes=outcomes.passes,
        classes=outcomes.classes,
        calibrated_ece=error.calibrated,
        provenance=replace(outcomes.provenance, images=len(outcomes)),
    )


def check_bins(bins: object) -> None:
    """Check a number of bins."""
    if not isinstance(bins, int | np.integer) or not 1 <= bins <= _MOST_BINS:
        raise InputError(f"bins must be an integer from 1 to {_MOST_BINS}, got {bins}")


_MOST_BINS = 10_000


def check_cutoffs(cutoffs: Sequence[float]) -> None:
    """Check cut-offs of the confidence, which a table shows with four digits."""
    if not all(0 <= c < 1 for c in cutoffs):
        raise InputError(f"cutoff must be at least 0 and below 1, got {cutoffs}")
    texts = [f"{c:.4g}" for c in cutoffs]
    if len(set(texts)) < len(texts):
        raise InputError(
            f"cutoff must have values that differ within four digits, got {cutoffs}"
        )


def _proportions(
    outcomes: Outcomes, metric: np.ndarray, cutoff: Float[np.ndarray, " m"]
) -> Ends:
    """Wilson intervals of the metrics that are fractions of images; NaN for the others."""
    low, high = np.full(len(metric), np.nan), np.full(len(metric), np.nan)
    images, correct = len(outcomes), outcomes.correct
    for row, (name, c) in enumerate(zip(metric.tolist(), cutoff.tolist(), strict=True)):
        above = outcomes.confidence > np.float32(c)
        counts = {
            "accuracy": (correct.sum(), images),
            "top5": (outcomes.top5.sum(), images),
            "acc": ((correct & above).sum(), above.sum()),
            "freq": (above.sum(), images),
            "unc": ((~correct & ~above).sum(), (~correct).sum()),
        }
        if name in counts:
            successes, trials = (np.array([int(count)]) for count in counts[name])
            (low[row],), (high[row],) = wilson(successes, trials)
    return low, high


def loss_intervals(outcomes: Outcomes) -> dict[str, tuple[float, float]]:
    """Intervals of the metrics that are means over images of losses or of contributions."""
    losses = {
        "nll": outcomes.nll,
        "brier": outcomes.brier,
        "signed_ece": outcomes.confidence - outcomes.correct.astype(np.float64),
        "aurc": aurc_contributions(SortedByConfidence.of(outcomes)),
    }
    if not enough_outcomes(outcomes.correct.astype(bool)):
        return dict.fromkeys(losses, (nan, nan))
    return {name: mean_interval(values) for name, values in losses.items()}
