"""Outcomes of the same images under several conditions: arrays (images, conditions) by name."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Shaped
from torch import nn

from visprism.core.errors import InputError
from visprism.core.provenance import Provenance
from visprism.core.run import DEFAULT_RUN, Run
from visprism.passes.batches import Batch
from visprism.passes.outcomes import outcomes
from visprism.passes.predict import predict
from visprism.passes.predictions import Predictions


@dataclass(frozen=True)
class OutcomesUnder:
    """What a model predicts of the same images under each condition.

    ``under["correct"]`` is 1 or 0, ``under["nll"]`` in nats, ``under["confidence"]`` the
    probability of ``under["predicted"]``; each is (images, conditions).
    """

    conditions: Sequence[Any]
    values: Mapping[str, np.ndarray]
    classes: int  # of the model
    provenance: Provenance

    def __getitem__(self, name: str) -> Shaped[np.ndarray, "n conditions"]:
        return self.values[name]


def outcomes_under(
    model: nn.Module,
    data: Mapping[Any, Iterable[Batch] | Predictions],
    *,
    run: Run = DEFAULT_RUN,
) -> OutcomesUnder:
    """Predict labeled batches of each condition, or read the predictions of them.

    Costs a pass of the model for each condition that is given as batches.
    """
    if not data:
        raise InputError("data must hold at least one condition, got none")
    silent, every = replace(run, progress=None), []
    predictions: list[Predictions] = []
    for condition in run.track(list(data), "conditions"):
        given = data[condition]
        if not isinstance(given, Predictions):
            given = predict(model, given, run=silent)
        predictions = [given]
        every.append(_values(given))
        if not np.array_equal(every[0]["target"], every[-1]["target"], equal_nan=True):
            raise InputError(
                "data must hold the same images in the same order under all conditions, got "
                f"other targets under {condition}"
            )
    names = [name for name in every[0] if name != "target"]
    values = {name: np.stack([o[name] for o in every], axis=1) for name in names}
    return OutcomesUnder(
        tuple(data), values, predictions[0].num_classes, predictions[0].provenance
    )


def _values(predictions: Predictions) -> dict[str, np.ndarray]:
    """Values by image; of other tasks than classes only the outcome and the loss."""
    if predictions.task.single_class:
        o = outcomes(predictions)
        names = ("target", "predicted", "nll", "confidence")
        of_class = {name: getattr(o, name) for name in names}
        return of_class | {"correct": o.correct.astype(np.float64)}
    correct, loss = predictions.outcomes().numpy().T
    missing = np.full(len(correct), np.nan)
    targets = predictions.targets.numpy().astype(np.float64)
    return {
        "target": targets, "correct": correct, "nll": loss, "predicted": missing,
        "confidence": missing,
    }  # fmt: skip
