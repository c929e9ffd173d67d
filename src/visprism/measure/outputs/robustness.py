"""Robustness: every metric on corrupted images, by corruption and severity.

The corrupted images come from the caller, as batches: here they are names and severities.

Source: Hendrycks and Dietterich (2019), Benchmarking neural network robustness to common
corruptions and perturbations.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch import nn

from visprism.core.devices import CPU, Compute
from visprism.core.errors import InputError
from visprism.core.provenance import Provenance
from visprism.measure.batches import Batch
from visprism.measure.outputs.calibration import uncertainty
from visprism.measure.outputs.predict import Progress, predict
from visprism.results.base import Result, column, result_type

CLEAN = ("clean", 0)  # the condition of images that are not corrupted

Condition = tuple[str, int]  # a corruption and its severity


@result_type("robustness")
class Robustness(Result):
    """Every metric of `Uncertainty` under each condition; one row for each."""

    corruption: np.ndarray = column(
        "Corruption", "", "its name; 'clean' for images as they are"
    )
    severity: np.ndarray = column("Severity", "", "1 (mild) to 5 (severe); 0 for clean images")
    metric: np.ndarray = column("Metric")
    cutoff: np.ndarray = column("Cut-off", "", "of the confidence; NaN for metrics without one")
    value: np.ndarray = column("Value")
    low: np.ndarray = column("Low", "", "95 % bootstrap interval over images")
    high: np.ndarray = column("High")

    def of(self, metric: str, corruption: str, severity: int) -> float:
        """The value of a metric without a cut-off: ``result.of("ece", "fog", 3)``.

        Raises:
            InputError: if it was not measured.
        """
        at = (self.corruption == corruption) & (self.severity == severity)
        (rows,) = np.nonzero(at & (self.metric == metric) & np.isnan(self.cutoff))
        if len(rows) != 1:
            raise InputError(f"no {metric!r} of {corruption!r} at severity {severity}")
        return self.value[rows[0]].item()

    def sentences(self) -> list[str]:
        """What was found, with its numbers."""
        rows = self.select(np.isnan(self.cutoff) & (self.corruption != CLEAN[0]))
        if not len(rows):
            return []
        right, ece = (rows.select(rows.metric == name) for name in ("accuracy", "ece"))
        worst = int(right.value.argmin())
        clean = ""
        if (self.corruption == CLEAN[0]).any():
            clean = f", {self.of('ece', *CLEAN):.1%} on clean ones"
            if right.high[worst] >= self.of("accuracy", *CLEAN):
                return ["No corruption costs accuracy that can be told from chance"]
        name = right.corruption[worst].replace("_", " ")
        return [
            f"{name} at severity {right.severity[worst]} does most harm: "
            f"{right.value[worst]:.1%} of the images are right (95 %: {right.low[worst]:.1%} "
            f"to {right.high[worst]:.1%}); the mean ECE on corrupted images is "
            f"{ece.value.mean():.1%}{clean}"
        ]


def robustness(
    model: nn.Module | Sequence[nn.Module],
    corrupted: Mapping[Condition, Iterable[Batch]],
    *,
    cutoff: float | Sequence[float] = 0.9,
    bins: int = 10,
    resamples: int = 400,
    samples: int = 1,
    seed: int = 0,
    compute: Compute = CPU,
    progress: Progress | None = None,
    provenance: Provenance | None = None,
) -> Robustness:
    """Accuracy and every metric of `uncertainty` for each corruption and severity.

    Costs a pass of the model for each condition.

    Args:
        model: in evaluation mode; or several, an ensemble.
        corrupted: labeled batches of each (corruption, severity); `CLEAN` names the images as
            they are.
        cutoff: of the confidence; see `uncertainty`.
        bins: of the calibration errors.
        resamples: of the bootstrap.
        samples: stochastic passes; see `predict`.
        seed: of the bootstrap and of dropout.
        compute: device and precision.
        progress: wraps the conditions to show how far it is.
        provenance: what is known of the model and the data; the rest is filled in here.

    Raises:
        InputError: if there is no condition, or as `predict` and `uncertainty` say.

    Source: Hendrycks and Dietterich (2019), sec. 4.
    """
    if not corrupted:
        raise InputError("there is no corrupted data; name a corruption and a severity")
    parts: list[dict[str, Any]] = []
    facts = provenance or Provenance()
    shown = progress or iter
    for name, severity in shown(list(corrupted)):
        batches = corrupted[name, severity]
        predictions = predict(
            model, batches, samples=samples, seed=seed, compute=compute, provenance=provenance
        )
        found = uncertainty(
            predictions, cutoff=cutoff, bins=bins, resamples=resamples, seed=seed
        )
        columns = {k: v for k, v in vars(found).items() if isinstance(v, np.ndarray)}
        rows = len(found)
        where = {"corruption": np.full(rows, name), "severity": np.full(rows, severity)}
        parts.append(where | columns)
        facts = found.provenance
    columns = {k: np.concatenate([part[k] for part in parts]) for k in parts[0]}
    return Robustness(**columns, provenance=replace(facts, seed=seed))
