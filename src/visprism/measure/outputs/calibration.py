"""Uncertainty: how right a model is, and whether it knows when it is not.

Source: Guo et al. (2017), On calibration of modern neural networks; for the cut-offs Park and
Kim (2022), How do vision transformers work?, and its code.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from visprism.core.errors import InputError
from visprism.measure.outputs.confidence_order import SortedByConfidence, resampled
from visprism.measure.outputs.metrics import metrics
from visprism.measure.outputs.outcomes import Outcomes, outcomes
from visprism.measure.outputs.predictions import Predictions
from visprism.results.base import Result, column, result_type, scalar


@result_type("uncertainty")
class Uncertainty(Result):
    """Every metric with its bootstrap interval; one row for each, and for each cut-off."""

    metric: np.ndarray = column("Metric", "", "its name")
    cutoff: np.ndarray = column("Cut-off", "", "of the confidence; NaN for metrics without one")
    value: np.ndarray = column(
        "Value", "", "NaN where it is not defined, as the accuracy of no image"
    )
    low: np.ndarray = column("Low", "", "95 % interval over images; NaN without resamples")
    high: np.ndarray = column("High")
    bins: int = scalar("Bins", "", "of the calibration errors", default=10)
    passes: int = scalar("Passes", "", "whose probabilities were averaged", default=1)
    resamples: int = scalar("Resamples", "", "of the bootstrap", default=0)

    def of(self, metric: str, cutoff: float | None = None) -> float:
        """The value of a metric: ``result.of("ece")``, ``result.of("unc", 0.9)``.

        Raises:
            InputError: if there is none.
        """
        at = np.isnan(self.cutoff) if cutoff is None else np.isclose(self.cutoff, cutoff)
        (rows,) = np.nonzero((self.metric == metric) & at)
        if len(rows) != 1:
            known = ", ".join(dict.fromkeys(self.metric.tolist()))
            raise InputError(f"no metric {metric!r} at cut-off {cutoff}; there is {known}")
        return self.value[rows[0]].item()

    def sentences(self) -> list[str]:
        """What was found, with its numbers."""
        return [
            f"{self.of('accuracy'):.1%} of the images are right, NLL {self.of('nll'):.3g}, "
            f"ECE {self.of('ece'):.1%} ({_sign(self.of('signed_ece'))}confident)"
        ]


def uncertainty(
    predictions: Predictions | Outcomes,
    *,
    cutoff: float | Sequence[float] = 0.9,
    bins: int = 10,
    resamples: int = 400,
    seed: int = 0,
) -> Uncertainty:
    """Every metric of predictions at once, with bootstrap intervals over images.

    With p the probabilities of an image, t its target, f = max p its confidence:

    - accuracy; top5; nll, mean of -log p_t; brier, mean of the sum over classes of (p - 1_t)^2.
    - at a cut-off c: acc, the accuracy where f > c; freq, the share of images with f > c; unc,
      the share of wrong images with f <= c; iou, mean_iou of the images with f > c.
    - mean_iou: right images of a class over those that are of it or said to be, averaged over
      the classes that occur as targets.
    - ece, over bins (i/m, (i+1)/m] of f: the sum of |right images - sum of f| over all images;
      signed_ece, mean of f less accuracy, above 0 for an overconfident model; mce, the largest
      |accuracy - mean of f| of a bin that holds an image; adaptive_ece, the ece of bins that
      hold equally many images, one on the edge counting in parts.
    - aurc: mean over i of the error rate of the i surest images.

    Costs one pass over the logits, and some 10 passes over a few columns for each resample.

    Args:
        predictions: or their outcomes, where the pass has been made.
        cutoff: one or several, each at least 0 and under 1.
        bins: m.
        resamples: of the bootstrap; 0 for none.
        seed: of the bootstrap.

    Raises:
        InputError: if a cut-off is out of range or named twice, bins are no whole number from 1
            on, or resamples are negative.

    Source: Guo et al. (2017), eq. 3 and 5; Nguyen and O'Connor (2015), Posterior calibration
    and exploratory analysis, for equal counts; Geifman et al. (2019), Bias-reduced uncertainty
    estimation, for the aurc; Efron and Tibshirani (1993), ch. 13, for percentile intervals.
    """
    cutoffs = [float(c) for c in np.atleast_1d(cutoff)]
    check_bins(bins)
    check_cutoffs(cutoffs)
    if resamples < 0:
        raise InputError(f"resamples is {resamples}; wants 0 for no intervals, or some hundred")
    seen = seen_once(predictions)
    ranked = SortedByConfidence.of(seen)
    whole = torch.ones(1, len(ranked), dtype=torch.float64)
    value = metrics(ranked, whole, cutoffs, bins)
    low, high = _intervals(ranked, cutoffs, bins, resamples, seed)
    names, at = zip(*value, strict=True)
    return Uncertainty(
        metric=np.array(names),
        cutoff=np.array(at),
        value=torch.cat(list(value.values())).numpy(),
        low=low,
        high=high,
        bins=bins,
        passes=seen.passes,
        resamples=resamples,
        provenance=replace(seen.provenance, seed=seed),
    )


def seen_once(predictions: Predictions | Outcomes) -> Outcomes:
    """The outcomes, which may be known already."""
    return predictions if isinstance(predictions, Outcomes) else outcomes(predictions)


def check_bins(bins: object) -> None:
    """Whether there can be so many bins.

    Raises:
        InputError: if not.
    """
    if not isinstance(bins, int | np.integer) or bins < 1:
        raise InputError(f"bins is {bins}; wants a whole number, at least 1")


def check_cutoffs(cutoffs: Sequence[float]) -> None:
    """Whether these are confidences, which a table tells apart.

    Raises:
        InputError: if not.
    """
    if not all(0 <= c < 1 for c in cutoffs):
        raise InputError(f"cutoff is {cutoffs}; wants confidences from 0 up to but not 1")
    shown = [f"{c:.4g}" for c in cutoffs]
    twice = [name for name in shown if shown.count(name) > 1]
    if twice:
        raise InputError(
            f"cutoff is {cutoffs}, of which two read {twice[0]}; wants confidences that differ "
            "within four digits"
        )


def _intervals(
    ranked: SortedByConfidence, cutoffs: Sequence[float], bins: int, resamples: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Percentiles 2.5 and 97.5 of each metric; resamples without a value are left out."""
    parts = [
        torch.stack(list(metrics(ranked, weights, cutoffs, bins).values()))
        for weights in resampled(len(ranked), resamples, seed)
    ]
    if not parts:
        unknown = np.full(10 + 4 * len(cutoffs), np.nan)
        return unknown, unknown
    ends = torch.tensor([0.025, 0.975], dtype=torch.float64)
    low, high = torch.cat(parts, dim=1).nanquantile(ends, dim=1).numpy()
    return low, high


def _sign(signed: float) -> str:
    return "over" if signed > 0 else "under"
