"""Metrics: every one from the running sums of ranked outcomes, for many weights at once."""

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

Found = dict[tuple[str, float], Float[Tensor, " r"]]  # by metric and cut-off


def metrics(
    ranked: SortedByConfidence, weights: Weights, cutoffs: Sequence[float], bins: int
) -> Found:
    """Every metric, for each set of weights."""
    sums = CumulativeSums.of(ranked, weights)
    total = sums.count[:, -1]
    means = weights @ ranked.values / total[:, None]
    found: Found = {
        (name, np.nan): means[:, i]
        for i, name in enumerate(("accuracy", "top5", "nll", "brier"))
    }
    wrong = (total - sums.correct[:, -1])[:, None]
    places = ranked.num_above(cutoffs)
    count, _, correct = sums.at(places)
    for i, c in enumerate(cutoffs):
        found["acc", c] = correct[:, i] / count[:, i]
        found["freq", c] = count[:, i] / total
        found["unc", c] = (wrong - (count - correct))[:, i] / wrong[:, 0]
        found["iou", c] = _mean_iou(ranked, weights, int(places[i]))
    found["mean_iou", np.nan] = _mean_iou(ranked, weights, len(ranked))
    found |= _calibration(ranked, sums, bins)
    risk = 1 - sums.correct[:, 1:] / sums.count[:, 1:].clamp(min=1)
    found["aurc", np.nan] = (weights * risk).sum(1) / total
    return found


def _calibration(ranked: SortedByConfidence, sums: CumulativeSums, bins: int) -> Found:
    total = sums.count[:, -1]
    upper = torch.cat([torch.zeros(1, dtype=torch.long), ranked.num_above(edges_of(bins)[1:])])
    last = torch.tensor([len(ranked)])  # a confidence of 0, which rounding can make, too
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


def _mean_iou(ranked: SortedByConfidence, weights: Weights, surest: int) -> Float[Tensor, " r"]:
    """Mean over classes of right / (target or predicted), of so many of the surest images."""
    target, predicted = ranked.target[:surest], ranked.predicted[:surest]
    right = target == predicted
    means = []
    for row in weights[:, :surest].numpy():
        sums = [
            np.bincount(of, weights=w, minlength=ranked.classes)
            for of, w in ((target, row), (predicted, row), (target, row * right))
        ]
        occurs = sums[0] > 0
        union = (sums[0] + sums[1] - sums[2])[occurs]
        means.append((sums[2][occurs] / union).mean() if occurs.any() else np.nan)
    return torch.tensor(means, dtype=torch.float64)


def edges_of(bins: int) -> list[float]:
    """Where the bins of confidence end, from above: 1, ..., 1/m; 0 is left out."""
    return [i / bins for i in range(bins, 0, -1)]
