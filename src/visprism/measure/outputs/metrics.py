"""Metrics from cumulative sums of outcomes sorted by confidence, for many weights at once."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from visprism.measure.outputs.confidence_order import (
    CumulativeSums,
    SortedByConfidence,
    Weights,
)

Values = dict[tuple[str, float], Float[Tensor, " r"]]  # by metric and cut-off


def metrics(
    ranked: SortedByConfidence, weights: Weights, cutoffs: Sequence[float], bins: int
) -> Values:
    """Every metric, for each set of weights."""
    sums = CumulativeSums.of(ranked, weights)
    total = sums.count[:, -1]
    means = weights @ ranked.values / total[:, None]
    values: Values = {
        (name, np.nan): means[:, i]
        for i, name in enumerate(("accuracy", "top5", "nll", "brier"))
    }
    wrong = (total - sums.correct[:, -1])[:, None]
    places = ranked.num_above(cutoffs)
    count, _, correct = sums.at(places)
    for i, c in enumerate(cutoffs):
        values["acc", c] = correct[:, i] / count[:, i]
        values["freq", c] = count[:, i] / total
        values["unc", c] = (wrong - (count - correct))[:, i] / wrong[:, 0]
        values["iou", c] = _mean_iou(ranked, weights, int(places[i]))
    values["mean_iou", np.nan] = _mean_iou(ranked, weights, len(ranked))
    values |= _calibration(ranked, sums, bins)
    values["aurc", np.nan] = area_under_risk_coverage(sums, weights)
    return values


def area_under_risk_coverage(sums: CumulativeSums, weights: Weights) -> Float[Tensor, " r"]:
    """Mean over i of the error rate of the i most confident images, for each set of weights."""
    risk = 1 - sums.correct[:, 1:] / sums.count[:, 1:].clamp(min=1)
    return (weights * risk).sum(1) / sums.count[:, -1]


def _calibration(ranked: SortedByConfidence, sums: CumulativeSums, bins: int) -> Values:
    total = sums.count[:, -1]
    upper = torch.cat([torch.zeros(1, dtype=torch.long), ranked.num_above(edges_of(bins)[1:])])
    last = torch.tensor([len(ranked)])  # also a confidence of 0, which rounding can give
    count, confidence, correct = (x.diff(dim=1) for x in sums.at(torch.cat([upper, last])))
    gap = (correct - confidence).abs()
    edge = torch.linspace(0, 1, bins + 1, dtype=torch.float64) * total[:, None]
    even_confidence, even_correct = (x.diff(dim=1) for x in sums.at_mass(edge))
    return {
        ("ece", np.nan): gap.sum(1) / total,
        ("signed_ece", np.nan): (sums.confidence[:, -1] - sums.correct[:, -1]) / total,
        ("mce", np.nan): (gap / count).nan_to_num(0.0).amax(1),
        ("adaptive_ece", np.nan): (even_correct - even_confidence).abs().sum(1) / total,
    }


def _mean_iou(ranked: SortedByConfidence, weights: Weights, images: int) -> Float[Tensor, " r"]:
    """Mean over classes of the IoU of target and prediction, of the most confident images."""
    target, predicted = ranked.target[:images], ranked.predicted[:images]
    correct = target == predicted
    means = []
    for row in weights[:, :images].numpy():
        sums = [
            np.bincount(of, weights=w, minlength=ranked.classes)
            for of, w in ((target, row), (predicted, row), (target, row * correct))
        ]
        occurs = sums[0] > 0
        union = (sums[0] + sums[1] - sums[2])[occurs]
        means.append((sums[2][occurs] / union).mean() if occurs.any() else np.nan)
    return torch.tensor(means, dtype=torch.float64)


def edges_of(bins: int) -> list[float]:
    """Upper edges of the bins of the confidence in descending order: 1, ..., 1/m."""
    return [i / bins for i in range(bins, 0, -1)]
