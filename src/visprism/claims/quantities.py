"""Quantities: the numbers of one trained network that claims are decided by.

Each is read from a result of an analysis. Quantities that need the same images and the same
options are measured in one study.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import numpy as np

from visprism.analyses.predictions.ablation_by_kind import KindAblations
from visprism.analyses.predictions.calibration import CalibrationMetrics
from visprism.analyses.predictions.corruptions import Robustness
from visprism.analyses.predictions.frequency_noise import (
    EQUAL_ENERGY,
    PAPER,
    FrequencyContrasts,
)
from visprism.claims.runs import END, WARMUP
from visprism.claims.scales import Scale
from visprism.core.errors import InputError
from visprism.results.hessian_summary import HessianSummary
from visprism.results.kind_summary import (
    SCALE_FREE,
    TO_LOWEST,
    TO_MEAN,
    VARIANCE,
    KindSummary,
)
from visprism.results.landscape import Landscape, Rings
from visprism.results.similarity import BlockStructure
from visprism.table.result import Result

R = TypeVar("R", bound=Result)
Split = Literal["test", "train"]
Limit = Literal["all", "test images", "images", "mini-batches"]  # of a scale

BATCH = 16  # images of a mini-batch of the Hessian
_RADIUS = 0.5  # of the circles in the loss landscape


@dataclass(frozen=True)
class Measurement:
    """A study of one trained network: analyses with options, on which images."""

    name: str
    analyses: tuple[str, ...]
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, hash=False)
    split: Split = "test"
    limit: Limit = "images"

    def limit_at(self, scale: Scale) -> int | None:
        """Largest number of images at a scale; None: all."""
        return {
            "all": None,
            "test images": scale.test_images,
            "images": scale.images,
            "mini-batches": BATCH * scale.mini_batches,
        }[self.limit]

    def options_at(self, scale: Scale) -> dict[str, Mapping[str, Any]]:
        """The options of each analysis at a scale."""
        options = dict(self.options)
        if "corruptions" in self.analyses and scale.corruptions is not None:
            options["corruptions"] = {"corruptions": scale.corruptions}
        return options


_PREDICTIONS = Measurement("predictions", ("calibration",), limit="test images")
_TRAINING = Measurement("training-predictions", ("calibration",), split="train", limit="all")
_FEATURES = Measurement("features", ("fourier", "variance", "cka"))
_NOISE = Measurement("noise", ("frequency-noise",), {"frequency-noise": {"protocol": "both"}})
_ABLATION = Measurement("ablation", ("ablation",))
_CORRUPTIONS = Measurement("corruptions", ("corruptions",))
_HESSIAN = Measurement(
    "hessian", ("hessian",), {"hessian": {"mini_batch": BATCH, "weight_decay": 0.0}},
    split="train", limit="mini-batches",
)  # fmt: skip
_AUGMENTED = Measurement(
    "hessian-augmented",
    ("hessian",),
    # The weight decay is that of the recipe of the run.
    {"hessian": {"mini_batch": BATCH, "train_images": "augmented"}},
    split="train",
    limit="mini-batches",
)
_LANDSCAPE = Measurement(
    "landscape",
    ("landscape",),
    {"landscape": {"points": 5, "reach": _RADIUS, "grid_planes": 3}},
    split="train",
    limit="mini-batches",
)


@dataclass(frozen=True)
class Quantity:
    """A number of a trained network, and the measurement that gives it."""

    name: str
    unit: str
    measurement: Measurement
    read: Callable[[Sequence[Result]], float] = field(hash=False, compare=False)
    phase: str = END
    logarithm: bool = False  # whether arms are compared by its ratio

    @property
    def key(self) -> str:
        """Name and phase, under which it is stored."""
        return self.name if self.phase == END else f"{self.name}, {self.phase}"


def _one(results: Iterable[Result], kind: type[R]) -> R:
    for result in results:
        if isinstance(result, kind):
            return result
    raise InputError(f"the measurement has no {kind.__name__}")


def _row(result: Result, **wanted: str) -> int:
    """The only row with these values in these columns."""
    columns = result.columns()
    matching = np.all([columns[name] == value for name, value in wanted.items()], axis=0)
    (rows,) = np.nonzero(matching)
    if len(rows) != 1:
        described = ", ".join(f"{name} {value!r}" for name, value in wanted.items())
        raise InputError(
            f"{type(result).__name__} must have one row with {described}, got {len(rows)}"
        )
    return int(rows[0])


def _metric(name: str) -> Callable[[Sequence[Result]], float]:
    return lambda results: _one(results, CalibrationMetrics).of(name)


def _hessian(column: str, *, decayed: bool) -> Callable[[Sequence[Result]], float]:
    def read(results: Sequence[Result]) -> float:
        summary = _one(results, HessianSummary)
        (rows,) = np.nonzero((summary.weight_decay > 0) == decayed)
        return float(getattr(summary, column)[rows[0]])

    return read


def _change(kind: str, quantity: str) -> Callable[[Sequence[Result]], float]:
    def read(results: Sequence[Result]) -> float:
        for result in results:
            if isinstance(result, KindSummary) and quantity in result.quantity:
                return float(result.mean[_row(result, kind=kind, quantity=quantity)])
        raise InputError(f"the measurement has no {quantity}")

    return read


def _contrast(noise: str) -> Callable[[Sequence[Result]], float]:
    def read(results: Sequence[Result]) -> float:
        contrasts = _one(results, FrequencyContrasts)
        return float(contrasts.contrast[_row(contrasts, noise=noise)])

    return read


def _halves(comparison: str, ablated: str) -> Callable[[Sequence[Result]], float]:
    def read(results: Sequence[Result]) -> float:
        drops = _one(results, KindAblations)
        return float(drops.drop[_row(drops, comparison=comparison, ablated=ablated)])

    return read


def _rise(batch_norm: str) -> Callable[[Sequence[Result]], float]:
    def read(results: Sequence[Result]) -> float:
        rings = _one(results, Rings)
        treatment = batch_norm if rings.has_batch_norm else "frozen"
        for ring in rings.summary():
            if ring.batch_norm == treatment and np.isclose(ring.radius, _RADIUS):
                return ring.rise
        raise InputError(f"the measurement has no circle of radius {_RADIUS:g}")

    return read


def _objective_rise(results: Sequence[Result]) -> float:
    grid = _one(results, Landscape)
    center = (grid.a == 0) & (grid.b == 0)
    return float(grid.objective[~center].mean() - grid.objective[center].mean())


_CHANGES = (TO_MEAN, TO_LOWEST, VARIANCE, SCALE_FREE)
QUANTITIES = {
    quantity.key: quantity
    for quantity in (
        Quantity("test accuracy", "%", _PREDICTIONS, _metric("accuracy")),
        Quantity("signed ECE", "%", _PREDICTIONS, _metric("signed_ece")),
        Quantity("NLL of training images", "nats", _TRAINING, _metric("nll")),
        *(
            Quantity(f"{kind} blocks, change of {change}", "", _FEATURES, _change(kind, change))
            for kind in ("attention", "mlp", "conv")
            for change in _CHANGES
        ),
        Quantity(
            "block structure of CKA", "", _FEATURES, lambda r: _one(r, BlockStructure).score
        ),
        *(
            Quantity(
                f"accuracy drop, high minus low frequencies, {noise} noise",
                "%",
                _NOISE,
                _contrast(noise),
            )
            for noise in (EQUAL_ENERGY, PAPER)
        ),
        *(
            Quantity(
                f"accuracy drop, late minus early {kind} of a stage",
                "%",
                _ABLATION,
                _halves(f"{kind}, late minus early", ablated),
            )
            for kind, ablated in (("attention", "block"), ("conv", "convolution"))
        ),
        Quantity(
            "accuracy on corrupted images",
            "%",
            _CORRUPTIONS,
            lambda results: _one(results, Robustness).mean_accuracy,
        ),
        *(
            Quantity(
                f"{name}, {objective}",
                unit,
                measurement,
                _hessian(column, decayed=decayed),
                phase=phase,
                logarithm=not unit,
            )
            for phase in (WARMUP, END)
            for objective, measurement, decayed in (
                ("NLL of clean images", _HESSIAN, False),
                ("NLL + L2 of augmented images", _AUGMENTED, True),
            )
            for name, column, unit in (
                ("NEP", "nep", "%"),
                ("APE", "ape_log_mean", ""),
                ("largest eigenvalue", "largest", ""),
            )
        ),
        *(
            Quantity(
                f"increase of the NLL at distance {_RADIUS:g}, {treatment} BatchNorm",
                "nats",
                _LANDSCAPE,
                _rise(treatment),
                logarithm=True,
            )
            for treatment in ("frozen", "reestimated")
        ),
        Quantity(
            "increase of NLL + L2 on a grid",
            "nats",
            _LANDSCAPE,
            _objective_rise,
            logarithm=True,
        ),
    )
}


def quantity_of(key: str) -> Quantity:
    """The quantity with this key."""
    if key not in QUANTITIES:
        raise InputError(f"unknown quantity {key!r}")
    return QUANTITIES[key]
