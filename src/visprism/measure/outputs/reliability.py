"""Reliability: accuracy by confidence, and the error rate by how many images are answered.

Source: DeGroot and Fienberg (1983), The comparison and evaluation of forecasters; El-Yaniv and
Wiener (2010), On the foundations of noise-free selective classification.
"""

import numpy as np
import torch

from visprism.core.errors import InputError
from visprism.measure.outputs.calibration import check_bins, seen_once
from visprism.measure.outputs.confidence_order import CumulativeSums, SortedByConfidence
from visprism.measure.outputs.metrics import edges_of
from visprism.measure.outputs.outcomes import Outcomes
from visprism.measure.outputs.predictions import Predictions
from visprism.results.base import Result, column, result_type, scalar


@result_type("reliability")
class Reliability(Result):
    """Reliability diagram and confidence histogram; one row for each bin, empty ones too."""

    lower: np.ndarray = column("Above", "", "the bin holds confidences above this")
    upper: np.ndarray = column("Up to", "", "and up to this")
    count: np.ndarray = column("Images", "", "of images")
    frequency: np.ndarray = column("Share", "", "share of all images")
    confidence: np.ndarray = column(
        "Mean confidence", "", "mean in the bin; NaN where it is empty"
    )
    accuracy: np.ndarray = column("Accuracy", "", "the same")
    ece: float = scalar("Ece", "", "sum of frequency |accuracy - confidence|", default=0.0)


@result_type("risk-coverage")
class RiskCoverage(Result):
    """Error rate of the surest images; one row for each of some coverages."""

    coverage: np.ndarray = column(
        "Coverage", "", "share of images that are answered, the surest"
    )
    risk: np.ndarray = column("Error rate", "", "share of them that are wrong")
    confidence: np.ndarray = column("Least confidence", "", "of the least sure of them")
    aurc: float = scalar("Aurc", "", "mean of the risk over all coverages", default=0.0)


def reliability(predictions: Predictions | Outcomes, *, bins: int = 10) -> Reliability:
    """Accuracy and mean confidence in bins (i/m, (i+1)/m] of the confidence.

    Args:
        predictions: or their outcomes.
        bins: m.

    Raises:
        InputError: if there is no bin.

    Source: Niculescu-Mizil and Caruana (2005), Predicting good probabilities with supervised
    learning.
    """
    check_bins(bins)
    seen = seen_once(predictions)
    ranked = SortedByConfidence.of(seen)
    sums = CumulativeSums.of(ranked, torch.ones(1, len(ranked), dtype=torch.float64))
    places = torch.cat([ranked.num_above(edges_of(bins)), torch.tensor([len(ranked)])])
    columns = (x.diff(dim=1)[0].flip(0).numpy() for x in sums.at(places))
    count, confidence, correct = columns
    upper = np.array(edges_of(bins))[::-1]
    filled = np.where(count > 0, count, np.nan)
    return Reliability(
        lower=np.append(0.0, upper[:-1]),
        upper=upper.copy(),
        count=count.astype(np.int64),
        frequency=count / len(ranked),
        confidence=confidence / filled,
        accuracy=correct / filled,
        ece=float(np.abs(correct - confidence).sum() / len(ranked)),
        provenance=seen.provenance,
    )


def risk_coverage(predictions: Predictions | Outcomes, *, points: int = 200) -> RiskCoverage:
    """The error rate of the surest images, for growing parts of the data.

    Images that are equally sure count as wrong as all of them on average.

    Args:
        predictions: or their outcomes.
        points: at most so many coverages, evenly spread.

    Raises:
        InputError: if there is no point.

    Source: Geifman and El-Yaniv (2017), Selective classification for deep neural networks.
    """
    if points < 1:
        raise InputError(f"points is {points}; wants at least 1 coverage")
    seen = seen_once(predictions)
    ranked = SortedByConfidence.of(seen)
    sums = CumulativeSums.of(ranked, torch.ones(1, len(ranked), dtype=torch.float64))
    risk = 1 - sums.correct[0, 1:] / sums.count[0, 1:]
    number = len(ranked)
    at = np.unique(
        np.linspace(number / min(points, number), number, min(points, number)).round()
    )
    answered = torch.from_numpy(at.astype(np.int64))
    return RiskCoverage(
        coverage=at / number,
        risk=risk[answered - 1].clamp(min=0).numpy(),
        confidence=ranked.confidence[answered - 1].numpy(),
        aurc=float(risk.mean()),
        provenance=seen.provenance,
    )
