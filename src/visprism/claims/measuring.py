"""Measuring trained networks: each quantity once, stored in the folder of its run."""

import json
from collections.abc import Iterable
from dataclasses import replace
from hashlib import blake2b
from typing import Any

from visprism.analyses import ANALYSES
from visprism.claims.quantities import Measurement, Quantity
from visprism.claims.runs import END, TrainingRun
from visprism.core.errors import InputError
from visprism.core.files import write_text
from visprism.core.run import Run
from visprism.study import examine
from visprism.study.subjects import DataOptions

_FILE = "quantities.json"


def measure(
    training: TrainingRun, quantities: Iterable[Quantity], run: Run
) -> dict[str, float]:
    """The quantities of a finished run by their keys.

    What was measured before of the same weights is read; the rest is measured and written,
    whole or not at all.
    """
    quantities = list(quantities)
    stored = stored_quantities(training)
    missing = [q for q in quantities if q.key not in stored]
    for measurement in dict.fromkeys(q.measurement for q in missing):
        wanted = [q for q in missing if q.measurement == measurement]
        stored |= _measured(training, measurement, wanted, run)
        _store(training, stored)
    return {q.key: stored[q.key] for q in quantities}


def is_measured(training: TrainingRun, quantities: Iterable[Quantity]) -> bool:
    """Whether a network is trained and all of these quantities of it are stored."""
    return training.finished and {q.key for q in quantities} <= set(stored_quantities(training))


def _measured(
    training: TrainingRun, measurement: Measurement, quantities: list[Quantity], run: Run
) -> dict[str, float]:
    """The quantities of one measurement, at all of their phases."""
    weights = training.phases()
    phases = list(dict.fromkeys(q.phase for q in quantities))
    train = measurement.split == "train"
    study = examine(
        {phase: str(weights[phase]) for phase in phases},
        training.train_data if train else training.data,
        analyses=ANALYSES.chosen(measurement.analyses, measurement.options_at(training.scale)),
        effort="full",
        train_data=training.train_data,
        images=DataOptions(
            split="train" if train else None, limit=measurement.limit_at(training.scale)
        ),
        on_error="raise",
        run=replace(run, seed=training.seed),
        listener=_ignore,
    )
    if study.failures:
        failure = study.failures[0]
        raise InputError(
            f"{measurement.name} of {training.name} failed: {failure.analysis}: "
            f"{failure.reason}"
        )
    values = {}
    for quantity in quantities:
        model = study.model(quantity.phase)
        results = [result for name in measurement.analyses for result in model.results(name)]
        values[quantity.key] = float(quantity.read(results))
    return values


def _ignore(event: object) -> None:
    """Events of the study are not shown: the runs are."""


def stored_quantities(training: TrainingRun) -> dict[str, float]:
    """What was measured of a finished run, by the keys of quantities."""
    path = training.folder / _FILE
    if not path.is_file():
        return {}
    content = json.loads(path.read_text())
    if content["identity"] != _identity(training):
        return {}
    return content["quantities"]


def _store(training: TrainingRun, values: dict[str, float]) -> None:
    content = {"identity": _identity(training), "quantities": values}
    write_text(training.folder / _FILE, json.dumps(content, indent=1) + "\n")


def _identity(training: TrainingRun) -> dict[str, Any]:
    """What the values belong to: the weights, the data and the settings of the scale."""
    scale = training.scale
    return {
        "weights": blake2b(training.phases()[END].read_bytes(), digest_size=8).hexdigest(),
        "data": training.data,
        "images": scale.images,
        "mini-batches": scale.mini_batches,
        "test images": scale.test_images,
        "corruptions": None if scale.corruptions is None else list(scale.corruptions),
    }
