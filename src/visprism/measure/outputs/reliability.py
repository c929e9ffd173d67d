"""Reliability: accuracy by confidence, and the error rate of the most confident images.

Source: DeGroot and Fienberg (1983), The comparison and evaluation of forecasters; El-Yaniv and
Wiener (2010), On the foundations of noise-free selective classification.
"""

from dataclasses import replace

import numpy as np

from visprism.core.errors import InputError
from visprism.measure.outputs.calibration import check_bins, loss_intervals
from visprism.measure.outputs.confidence_order import CumulativeSums, SortedByConfidence
from visprism.measure.outputs.metrics import edges_of
from visprism.passes.outcomes import outcomes_of
from visprism.passes.predictions import Predictions
from visprism.results.calibration import Reliability, RiskCoverage
from visprism.results.predictions import Outcomes


def reliability(predictions: Predictions | Outcomes, *, bins: int = 10) -> Reliability:
    """Accuracy and mean confidence in bins (i/m, (i+1)/m] of the confidence.

    Args:
        predictions: of a data set, or their outcomes.
        bins: number of bins, m.

    Source: Niculescu-Mizil and Caruana (2005), Predicting good probabilities with supervised
    learning.
    """
    check_bins(bins)
    outcomes = outcomes_of(predictions)
    ranked = SortedByConfidence.of(outcomes)
    edges = np.append(ranked.num_above(edges_of(bins)), len(ranked))
    count = np.diff(edges)[::-1]
    confidence, correct = (np.diff(v)[::-1] for v in CumulativeSums.of(ranked).at(edges))
    upper = np.array(edges_of(bins))[::-1]
    filled = np.where(count > 0, count, np.nan)
    return Reliability(
        lower=np.append(0.0, upper[:-1]),
        upper=upper.copy(),
        count=count.copy(),
        frequency=count / len(ranked),
        confidence=confidence / filled,
        accuracy=correct / filled,
        ece=float(np.abs(correct - confidence).sum() / len(ranked)),
        provenance=outcomes.provenance,
    )


def risk_coverage(predictions: Predictions | Outcomes, *, points: int = 200) -> RiskCoverage:
    """The error rate of the most confident images against their fraction of all images.

    Images of equal confidence each count with their mean error, so that their order does not
    matter.

    Args:
        predictions: of a data set, or their outcomes.
        points: number of coverages, equally spaced; at most one per image.

    Source: Geifman and El-Yaniv (2017), Selective classification for deep neural networks.
    """
    if points < 1:
        raise InputError(f"points must be at least 1, got {points}")
    outcomes = outcomes_of(predictions)
    ranked = SortedByConfidence.of(outcomes)
    number = len(ranked)
    risk = 1 - CumulativeSums.of(ranked).correct[1:] / np.arange(1, number + 1)
    points = min(points, number)
    low, high = loss_intervals(outcomes)["aurc"]
    counts = np.unique(np.linspace(number / points, number, points).round())
    answered = counts.astype(np.int64)
    return RiskCoverage(
        coverage=counts / number,
        risk=risk[answered - 1].clip(min=0),
        confidence=ranked.confidence[answered - 1],
        aurc=float(risk.mean()),
        aurc_low=low,
        aurc_high=high,
        provenance=replace(outcomes.provenance, images=number),
    )
