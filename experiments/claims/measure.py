"""Quantities of trained networks: each is measured once and stored in the folder of its run.

Values are stored by quantity and epoch, such as ``NEP, trained objective @1``.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from hashlib import blake2b
from typing import Any, TypedDict

import numpy as np
import torch

import visprism as vp
from experiments.claims.files import read_json, write_text
from experiments.claims.hypotheses import (
    ACCURACY,
    BLOCK_STRUCTURE,
    CHANGES,
    CLEAN,
    CORRUPTED,
    FIT,
    NLL,
    SIGNED_ECE,
    TRAINED,
    Quantity,
    ape,
    change,
    contrast,
    late_minus_early,
    leading,
    nep,
    rise,
)
from experiments.claims.networks import TrainingRun

_FILE = "measured.json"
_HESSIAN_BATCH = 16  # images of a mini-batch
_RADIUS = 0.5  # of the circles in the loss landscape
_EQUAL = 1.05  # largest ratio of training NLLs that count as equal


def key(quantity: Quantity | str, epoch: int) -> str:
    """Name under which a value is stored."""
    return f"{quantity} @{epoch}"


def fit_curve(values: Mapping[str, float | None]) -> dict[int, float]:
    """Finite NLL of training images by epoch, from stored values."""
    head = f"{FIT} @"
    return {
        int(k.removeprefix(head)): v
        for k, v in values.items()
        if k.startswith(head) and v is not None and np.isfinite(v)
    }


def equal_fit(
    one: Mapping[int, float], other: Mapping[int, float], *, early: bool
) -> tuple[int, int] | None:
    """The epochs of two networks at which their training NLLs are equal within 5%.

    Among all such pairs of snapshots, the one with the lowest NLL, or the highest with `early`.
    """
    pairs = [
        (-min(a, b) if early else max(a, b), abs(a - b), e, f)
        for e, a in one.items()
        for f, b in other.items()
        if max(a, b) <= _EQUAL * min(a, b)
    ]
    return min(pairs)[2:] if pairs else None


# Measurements: of a run at an epoch; the objective is of a Hessian, and else empty.


def _outputs(training: TrainingRun, epoch: int, run: vp.Run, _: str) -> dict[str, float]:
    """Accuracy and calibration on all test images, NLL of all training images."""
    loaded = _loaded(training, epoch)
    tests = _test_images(training, training.scale.test_images)
    metrics = vp.calibration(_predictions(loaded, tests, run))
    nll = vp.calibration(_predictions(loaded, _training_images(training), run)).nll
    return {
        str(ACCURACY): metrics.accuracy,
        str(SIGNED_ECE): metrics.signed_ece,
        str(NLL): nll,
    }


def _fit(training: TrainingRun, epoch: int, run: vp.Run, _: str) -> dict[str, float]:
    images = _training_images(training, training.scale.fit_images)
    return {str(FIT): vp.calibration(_predictions(_loaded(training, epoch), images, run)).nll}


def _hessian(
    training: TrainingRun, epoch: int, run: vp.Run, objective: str
) -> dict[str, float]:
    """NEP, and APE as the arithmetic mean of the positive leading eigenvalues."""
    loaded = _loaded(training, epoch)
    count = training.scale.mini_batches
    summary = vp.hessian_spectrum(
        loaded.model,
        _objective_batches(training, loaded, objective, count * _HESSIAN_BATCH),
        run=run,
        **_regularization(training, objective),
    ).summary()
    return {
        str(nep(objective)): float(summary.nep[0]),
        str(ape(objective)): float(summary.ape[0]),
    }


def _leading(training: TrainingRun, epoch: int, run: vp.Run, _: str) -> dict[str, float]:
    """The largest Hessian eigenvalue of the mean loss of all measured images together."""
    loaded = _loaded(training, epoch)
    values = {}
    for objective in (CLEAN, TRAINED):
        data = _objective_batches(training, loaded, objective, training.scale.images)
        options = _regularization(training, objective)
        eigenvalues = vp.top_eigenvalues(
            vp.Objective(loaded.model, data, run=run, **options), k=1, which="LA", tol=1e-2
        )
        values[str(leading(objective))] = float(eigenvalues.value[0])
    return values


def _landscape(training: TrainingRun, epoch: int, run: vp.Run, _: str) -> dict[str, float]:
    loaded = _loaded(training, epoch)
    images = _training_images(training, training.scale.images)
    data = list(vp.batches(images, loaded.preprocessing, 64))
    circles = vp.loss_by_distance(loaded.model, data, radii=(_RADIUS,), run=run)
    rises = zip(circles.batch_norm.tolist(), circles.rise, strict=True)
    return {str(rise(name)): float(value) for name, value in rises}


def _features(training: TrainingRun, epoch: int, run: vp.Run, _: str) -> dict[str, float]:
    results = _examined(training, epoch, run, ("fourier", "variance", "cka"))
    values = {}
    summaries: list[Any] = [r for r in results if isinstance(r, vp.results.KindSummary)]
    for summary in summaries:
        for kind, quantity, mean in zip(
            summary.kind, summary.quantity, summary.mean, strict=True
        ):
            if quantity in CHANGES:
                values[str(change(str(kind), str(quantity)))] = float(mean)
    values[str(BLOCK_STRUCTURE)] = _one(results, vp.results.BlockStructure).score
    return {name: value for name, value in values.items() if np.isfinite(value)}


def _noise(training: TrainingRun, epoch: int, run: vp.Run, _: str) -> dict[str, float]:
    options = {"frequency-noise": {"protocol": "both"}}
    results = _examined(training, epoch, run, ("frequency-noise",), options)
    contrasts = _one(results, vp.results.FrequencyContrasts)
    named = dict(zip(contrasts.noise.tolist(), contrasts.contrast.tolist(), strict=True))
    return {str(contrast(noise)): value for noise, value in named.items()}


def _ablations(training: TrainingRun, epoch: int, run: vp.Run, _: str) -> dict[str, float]:
    drops = _one(_examined(training, epoch, run, ("ablation",)), vp.results.KindAblations)
    parts = {"attention, late minus early": "block", "conv, late minus early": "convolution"}
    return {
        str(late_minus_early(str(name).partition(",")[0])): float(drop)
        for name, ablated, drop in zip(drops.comparison, drops.ablated, drops.drop, strict=True)
        if parts.get(str(name)) == ablated
    }


def _corrupted(training: TrainingRun, epoch: int, run: vp.Run, _: str) -> dict[str, float]:
    results = _examined(training, epoch, run, ("corruptions",))
    return {str(CORRUPTED): _one(results, vp.results.CorruptedMetrics).mean_accuracy}


MEASUREMENTS: Mapping[str, Callable[[TrainingRun, int, vp.Run, str], dict[str, float]]] = {
    "outputs": _outputs,
    "fit": _fit,
    "hessian": _hessian,
    "leading": _leading,
    "landscape": _landscape,
    "features": _features,
    "noise": _noise,
    "ablations": _ablations,
    "corruptions": _corrupted,
}


def measure(
    training: TrainingRun, wanted: Iterable[tuple[Quantity, int]], run: vp.Run
) -> dict[str, float]:
    """All stored values of a finished run, after (quantity, epoch) that were missing.

    What was measured before of the same weights is read; the rest is measured and written.
    """
    stored = stored_values(training)
    for quantity, epoch in wanted:
        if key(quantity, epoch) in stored:
            continue
        values = MEASUREMENTS[quantity.measurement](
            training, epoch, replace(run, seed=training.seed), quantity.objective
        )
        values.setdefault(str(quantity), float("nan"))  # a network without this quantity
        stored |= {key(name, epoch): value for name, value in values.items()}
        content = {"identity": _identity(training), "values": _finite(stored)}
        write_text(training.folder / _FILE, json.dumps(content, indent=1) + "\n")
    return stored


def _finite(values: Mapping[str, float]) -> dict[str, float | None]:
    return {name: value if np.isfinite(value) else None for name, value in values.items()}


class _Stored(TypedDict):
    identity: dict[str, Any]
    values: dict[str, float | None]


def stored_values(training: TrainingRun) -> dict[str, float]:
    """What was measured of a finished run, by quantity and epoch."""
    path = training.folder / _FILE
    if not path.is_file():
        return {}
    stored = read_json(
        path, _Stored, "the values of a network of `python -m experiments.claims run`"
    )
    if stored["identity"] != _identity(training):
        return {}
    return {k: float("nan") if v is None else v for k, v in stored["values"].items()}


def _identity(training: TrainingRun) -> dict[str, Any]:
    """What the values belong to: the weights, the data and the settings of the scale."""
    weights, scale = training.snapshots()[training.recipe.epochs], training.scale
    return {
        "weights": blake2b(weights.read_bytes(), digest_size=8).hexdigest(),
        "data": training.data,
        "images": [scale.test_images, scale.images, scale.mini_batches, scale.fit_images],
    }


# Networks and images.


def _loaded(training: TrainingRun, epoch: int) -> vp.LoadedModel:
    return vp.load_model(training.spec(epoch))


@lru_cache(maxsize=2)
def _all_images(data: str, split: str) -> vp.ImageSet:
    return vp.load_data(data, split=split)


def _test_images(training: TrainingRun, limit: int | None) -> vp.ImageSet:
    return _first(_all_images(training.data, "test"), limit, training.seed)


def _training_images(training: TrainingRun, limit: int | None = None) -> vp.ImageSet:
    """The training images of a run, or some of them."""
    images = _all_images(training.data, "train")
    if training.subset < 1:
        images = vp.stratified(images, training.subset, seed=training.seed)
    return _first(images, limit, training.seed)


def _first(images: vp.ImageSet, limit: int | None, seed: int) -> vp.ImageSet:
    """The first images of a random order, which networks of one seed share."""
    if limit is None or limit >= len(images):
        return images
    return images.subset(np.random.default_rng(seed).permutation(len(images))[:limit])


def _predictions(loaded: vp.LoadedModel, images: vp.ImageSet, run: vp.Run) -> Any:
    return vp.predict(loaded.model, vp.batches(images, loaded.preprocessing, 250), run=run)


def _objective_batches(
    training: TrainingRun, loaded: vp.LoadedModel, objective: str, number: int
) -> Sequence[tuple[torch.Tensor, torch.Tensor]]:
    """Mini-batches of training images, as they are or augmented as in training."""
    images = _training_images(training, number)
    if objective == CLEAN:
        return list(vp.batches(images, loaded.preprocessing, _HESSIAN_BATCH))
    feed = vp.memory_feed(
        images,
        loaded.preprocessing,
        _HESSIAN_BATCH,
        augmentation=training.recipe.augmentation,
        seed=training.seed,
    )
    return list(feed.epoch(0))


def _regularization(training: TrainingRun, objective: str) -> dict[str, Any]:
    """The L2 term of the recipe for the objective that was trained; none for the NLL."""
    if objective == CLEAN:
        return {}
    recipe = training.recipe
    return {"weight_decay": recipe.weight_decay, "decayed": recipe.decay_params}


def _examined(
    training: TrainingRun,
    epoch: int,
    run: vp.Run,
    analyses: tuple[str, ...],
    options: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[Any]:
    """The results of analyses of test images."""
    study = vp.examine(
        {"network": training.spec(epoch)},
        _test_images(training, training.scale.images),
        analyses=analyses,
        options=options,
        effort="full",
        on_error="raise",
        run=run,
        listener=lambda _: None,
    )
    model = study.model("network")
    return [result for name in analyses for result in model.results(name)]


def _one(results: Iterable[Any], kind: type[vp.Result]) -> Any:
    return next(result for result in results if isinstance(result, kind))
