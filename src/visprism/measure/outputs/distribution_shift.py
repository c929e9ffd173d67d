"""Accuracy on sets of shifted images, restricted to the classes that a set has.

Sources: Hendrycks & Dietterich (2019), ImageNet-C; Hendrycks et al. (2021), The many faces of
robustness (ImageNet-R); Hendrycks et al. (2021), Natural adversarial examples (ImageNet-A);
Wang et al. (2019), Learning robust global representations by penalizing local predictive power
(ImageNet-Sketch).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn

from visprism.core.errors import InputError
from visprism.core.run import DEFAULT_RUN, Run
from visprism.core.statistics import difference_interval, wilson
from visprism.passes.batches import Batch
from visprism.passes.predict import predict
from visprism.passes.predictions import Predictions
from visprism.results.distribution_shift import DistributionShift


@dataclass(frozen=True)
class ShiftedImages:
    """Batches of (images, targets), with their classes and, of -C, their condition."""

    batches: Iterable[Batch]
    classes: Sequence[int] = ()  # that predictions are restricted to; empty: all
    corruption: str = ""
    severity: int = 0


def distribution_shift(
    model: nn.Module,
    sets: Mapping[str, ShiftedImages],
    reference: Predictions,
    *,
    run: Run = DEFAULT_RUN,
) -> DistributionShift:
    """Accuracy on each set, and its difference to that on the images of `reference`.

    With the classes C of a set, the prediction of an image is the class of C with the largest
    logit. The reference is restricted in the same way: to its images of the classes C, and to
    the logits of C. Intervals are Wilson's, those of differences Newcombe's for independent
    samples.

    Cost: one forward pass over each set.

    Args:
        model: in evaluation mode.
        sets: shifted images by name, with the class indices of the model.
        reference: predictions of images without a shift.
        run: device, precision, progress and provenance.

    Source: Newcombe (1998), Interval estimation for the difference between independent
    proportions, method 10.
    """
    if not sets:
        raise InputError("sets must hold at least one set of shifted images, got none")
    rows = []
    for name in run.track(list(sets), "sets of shifted images"):
        shifted = sets[name]
        predictions = predict(model, shifted.batches, run=replace(run, progress=None))
        classes = list(shifted.classes) or list(range(predictions.num_classes))
        if not set(predictions.targets.tolist()) <= set(classes):
            raise InputError(f"targets of {name} must be among its classes, got others")
        accuracy = _accuracy(predictions, classes)
        clean = _accuracy(reference, classes)
        if not clean[3]:
            raise InputError(
                f"the data must have images of the classes of {name}, got none of them"
            )
        low, high = difference_interval(accuracy[:3], clean[:3], (0.0, 0.0))
        drop = clean[0] - accuracy[0], low, high
        set_columns = name, shifted.corruption, shifted.severity, len(classes), accuracy[3]
        rows.append((*set_columns, *accuracy[:3], clean[3], clean[0], *drop))
    names = (
        "shift", "corruption", "severity", "classes", "images",
        "accuracy", "accuracy_low", "accuracy_high",
        "reference_images", "reference", "drop", "drop_low", "drop_high",
    )  # fmt: skip
    columns = map(np.array, zip(*rows, strict=True))
    return DistributionShift(
        **dict(zip(names, columns, strict=True)), provenance=reference.provenance
    )


def _accuracy(
    predictions: Predictions, classes: Sequence[int]
) -> tuple[float, float, float, int]:
    """Accuracy among some classes with its interval, and the number of images of them."""
    chosen = torch.tensor(sorted(classes))
    rows = torch.isin(predictions.targets, chosen)
    logits = predictions.members.mean(0)[rows][:, chosen]
    correct = int((chosen[logits.argmax(1)] == predictions.targets[rows]).sum())
    number = int(rows.sum())
    low, high = wilson(np.array([correct]), np.array([number]))
    return correct / max(1, number), float(low[0]), float(high[0]), number
