"""Robustness: every metric on corrupted images, by corruption and severity.

The corrupted images come from the caller as batches; here they are names and severities.

Source: Hendrycks and Dietterich (2019), Benchmarking neural network robustness to common
corruptions and perturbations.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import nan
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import nn

from visprism.core.errors import InputError
from visprism.core.run import DEFAULT_RUN, Run
from visprism.core.statistics import mean_interval, paired_proportions_interval, wilson
from visprism.analyses.predictions.calibration import calibration
from visprism.passes.batches import Batch
from visprism.passes.outcomes import outcomes
from visprism.passes.predict import predict
from visprism.passes.predictions import Predictions
from visprism.results.per_image import PerImage
from visprism.passes.outcomes import Outcomes
from visprism.results.robustness import (
    CLEAN,
    MEAN_ACCURACY,
    MEAN_DROP,
    MEAN_NLL,
    Robustness,
)

Condition = tuple[str, int]  # a corruption and its severity
_Change = tuple[float, float, float]  # value and ends of its interval


def robustness(
    model: nn.Module | Sequence[nn.Module],
    corrupted: Mapping[Condition, Iterable[Batch] | Predictions],
    *,
    cutoff: float | Sequence[float] = 0.9,
    bins: int = 10,
    samples: int = 1,
    run: Run = DEFAULT_RUN,
) -> tuple[Robustness, PerImage]:
    """Accuracy and every metric of `calibration` for each corruption and severity.

    Changes from clean images are paired by image, and means over conditions are computed for
    each image first: both need the same images in the same order under all conditions, and
    are NaN otherwise. Costs a pass of the model for each condition.

    Args:
        model: in evaluation mode; or several, an ensemble.
        corrupted: labeled batches of each (corruption, severity), or the predictions of them;
            `CLEAN` is the condition of clean images.
        cutoff: of the confidence; see `calibration`.
        bins: of the calibration errors.
        samples: stochastic passes; see `predict`.
        run: device, precision, progress, and the seed of dropout.

    Returns:
        The metrics; for each image its accuracy, NLL and drop of accuracy from the clean image
        as means over the corruptions and severities.

    Source: Hendrycks and Dietterich (2019), sec. 4.
    """
    if not corrupted:
        raise InputError("corrupted must hold at least one condition, got none")
    silent = replace(run, progress=None)
    by_condition: dict[Condition, Outcomes] = {}
    for condition in run.track(list(corrupted), "conditions"):
        batches = corrupted[condition]
        if not isinstance(batches, Predictions):
            batches = predict(model, batches, samples=samples, run=silent)
        by_condition[condition] = outcomes(batches)
    clean = by_condition.get(CLEAN)
    parts = [
        _rows(condition, result, clean, cutoff, bins)
        for condition, result in by_condition.items()
    ]
    last = next(reversed(by_condition.values()))
    provenance = replace(last.provenance, seed=run.seed)
    per_image, scalars = _means(by_condition)
    columns: dict[str, Any] = {
        name: np.concatenate([part[name] for part in parts]) for name in parts[0]
    }
    return (
        Robustness(
            **columns,
            **scalars,
            classes=last.classes,
            provenance=provenance,
        ),
        replace(per_image, provenance=provenance),
    )


def _rows(
    condition: Condition,
    result: Outcomes,
    clean: Outcomes | None,
    cutoff: float | Sequence[float],
    bins: int,
) -> dict[str, np.ndarray]:
    """The rows of one condition, as columns."""
    metrics = calibration(result, cutoff=cutoff, bins=bins)
    columns = {k: v for k, v in vars(metrics).items() if isinstance(v, np.ndarray)}
    changes = np.full((3, len(metrics)), nan)
    if clean is not None and condition != CLEAN and _same_images([clean, result]):
        changes[:, metrics.metric == "accuracy"] = _column(_accuracy_change(clean, result))
        changes[:, metrics.metric == "nll"] = _column(_mean_change(clean.nll, result.nll))
    where = {
        "corruption": np.full(len(metrics), condition[0]),
        "severity": np.full(len(metrics), condition[1]),
    }
    names = ("change", "change_low", "change_high")
    return where | columns | dict(zip(names, changes, strict=True))


def _means(by_condition: Mapping[Condition, Outcomes]) -> tuple[PerImage, dict[str, Any]]:
    """Values of each image as means over the corrupted conditions, and means over images."""
    corrupted = [result for key, result in by_condition.items() if key != CLEAN]
    if not corrupted or not _same_images(corrupted):
        empty = np.array([], dtype=np.float64)
        return PerImage(quantity=empty.astype(str), image=empty.astype(int), value=empty), {}
    correct = np.mean([result.correct for result in corrupted], axis=0)
    nll = np.mean([result.nll for result in corrupted], axis=0)
    quantities = {MEAN_ACCURACY: correct, MEAN_NLL: nll}
    low, high = _fraction_interval(correct)
    scalars = {
        "mean_accuracy": float(correct.mean()),
        "mean_accuracy_low": low,
        "mean_accuracy_high": high,
    }
    clean = by_condition.get(CLEAN)
    if clean is not None and _same_images([clean, *corrupted]):
        before = clean.correct.astype(np.float64)
        quantities[MEAN_DROP] = before - correct
        drop, low, high = _mean_change(correct, before)
        scalars |= {"mean_drop": drop, "mean_drop_low": low, "mean_drop_high": high}
    n = len(correct)
    per_image = PerImage(
        quantity=np.repeat(list(quantities), n),
        image=np.tile(np.arange(n), len(quantities)),
        value=np.concatenate(list(quantities.values())),
    )
    return per_image, scalars


def _same_images(results: Sequence[Outcomes]) -> bool:
    """Whether all have the same targets in the same order."""
    return all(np.array_equal(result.target, results[0].target) for result in results)


def _accuracy_change(clean: Outcomes, result: Outcomes) -> _Change:
    before, after = clean.correct, result.correct
    gained, lost = int((~before & after).sum()), int((before & ~after).sum())
    low, high = paired_proportions_interval(gained, lost, len(before))
    return (gained - lost) / len(before), low, high


def _fraction_interval(values: Float[np.ndarray, " n"]) -> tuple[float, float]:
    """The interval of a mean of fractions of images; Wilson's where each is 0 or 1."""
    if np.isin(values, (0.0, 1.0)).all():
        (low,), (high,) = wilson(np.array([round(values.sum())]), np.array([len(values)]))
        return float(low), float(high)
    low, high = np.clip(mean_interval(values), 0.0, 1.0).tolist()
    return low, high


def _mean_change(before: Float[np.ndarray, " n"], after: Float[np.ndarray, " n"]) -> _Change:
    difference = after - before
    if np.isin([before, after], (0.0, 1.0)).all():
        gained, lost = int((difference > 0).sum()), int((difference < 0).sum())
        return float(difference.mean()), *paired_proportions_interval(gained, lost, len(before))
    return float(difference.mean()), *mean_interval(difference)


def _column(change: _Change) -> Float[np.ndarray, "3 1"]:
    return np.array(change)[:, None]
