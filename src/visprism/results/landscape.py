"""Results on loss landscapes: surfaces over planes, circles around the weights, curvature."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from visprism.core.errors import InputError
from visprism.core.statistics import t_interval
from visprism.estimates import questions
from visprism.estimates.answers import Answer
from visprism.estimates.findings import Finding
from visprism.estimates.text import images_text, interval_text
from visprism.results.loss import objective_label
from visprism.results.per_image import DIRECTION_PAIRS, PerImage
from visprism.table.result import Result, column, result_type, scalar

BATCH_NORM_LABELS = {
    "frozen": "frozen BatchNorm statistics",
    "reestimated": "re-estimated BatchNorm statistics",
}

_MAX_ROUNDING = 1e-3  # nats by which a lower precision may change the NLL without a finding
_DISAGREEMENT = 1.5  # ratio of the two increases of the NLL above which VP105 is reported
_SMALLEST_INCREASE = 0.01  # nats; where both increases are smaller, they are not compared


@result_type("landscape")
class Landscape(Result):
    """Loss and accuracy over planes in the space of parameters; one row for each point.

    `nll` and `l2` are separate surfaces; `objective` is their sum.
    """

    pair: np.ndarray = column("Direction pair", "", "number of the plane, from 0 on")
    a: np.ndarray = column("a", "", "coordinate along the first direction; 0 at the weights")
    b: np.ndarray = column("b", "", "coordinate along the second direction; 0 at the weights")
    nll: np.ndarray = column("NLL", "nats", "mean over images; infinite or NaN on overflow")
    nll_error: np.ndarray = column(
        "NLL, standard error", "nats", "over images; NaN for a single image"
    )
    rise: np.ndarray = column("NLL increase", "nats", "NLL minus that of the model's weights")
    rise_error: np.ndarray = column(
        "NLL increase, standard error", "nats", "over images, each compared with itself"
    )
    l2: np.ndarray = column("L2 term", "nats", "half the weight decay times the squared norm")
    accuracy: np.ndarray = column("Accuracy", "", "fraction of images classified correctly")
    accuracy_error: np.ndarray = column("Accuracy, standard error", "", "over images")
    classes: int = scalar(
        "Classes", "", "of the model; chance level is log(classes)", default=0
    )
    weight_decay: float = scalar("Weight decay", "", "of the L2 term", default=0.0)
    plane: str = scalar("Plane", "", "random, checkpoints or given", default="random")
    normalization: str = scalar("Normalization", "", "of random directions", default="filter")
    batch_norm: str = scalar("BatchNorm", "", "frozen or reestimated", default="frozen")
    has_batch_norm: bool = scalar(
        "Has BatchNorm", "", "whether the model has running statistics", default=True
    )
    loss: str = scalar("Loss", "", "name of the loss function", default="cross_entropy")
    rounding: float = scalar(
        "Rounding", "nats", "change of the NLL at the weights by a lower precision", default=0.0
    )

    @property
    def objective(self) -> Float[np.ndarray, " n"]:
        """NLL + L2 at each point, in nats."""
        return self.nll + self.l2

    def table(self, quantity: str, pair: int) -> Float[np.ndarray, "m n"]:
        """A quantity over one plane, b changing from row to row."""
        self._check_column(quantity)
        rows = self.select(self.pair == pair)
        if not len(rows):
            planes = ", ".join(map(str, np.unique(self.pair)))
            raise InputError(f"pair must be one of {planes}, got {pair}")
        return getattr(rows, quantity).reshape(len(np.unique(rows.b)), -1)

    def findings(self) -> tuple[Finding, ...]:
        """The range of the surface, its BatchNorm statistics, and what limits its accuracy."""
        finite = self.rise[np.isfinite(self.rise)]
        findings = []
        if len(finite):
            planes = len(np.unique(self.pair))
            plural = "plane" if planes == 1 else "planes"
            statistics = f"; {BATCH_NORM_LABELS[self.batch_norm]}" * self.has_batch_norm
            findings.append(
                Finding(
                    f"{objective_label(self.provenance.split)} on {planes} {plural}: "
                    f"increase {finite.min():.3g} to {finite.max():.3g} nats within "
                    f"|a|, |b| <= {np.abs(self.a).max():g}{statistics}, "
                    f"{images_text(self.provenance.images, self.provenance.split)}"
                )
            )
        if self.rounding > _MAX_ROUNDING:
            findings.append(
                Finding(
                    f"{self.provenance.precision} changes the NLL of the model's weights by "
                    f"{self.rounding:.2g} nats; smaller differences are not significant"
                )
            )
        missing = int((~np.isfinite(self.nll)).sum())
        if missing:
            findings.append(
                Finding(f"the NLL is not finite at {missing} of {len(self)} points")
            )
        return tuple(findings)


@dataclass(frozen=True)
class Ring:
    """The increase of the NLL at one distance, over all direction pairs."""

    batch_norm: str
    radius: float
    rise: float  # mean over angles and pairs, nats
    spread: float  # standard deviation over pairs; NaN for one
    low: float  # Student's 95% interval over pairs; NaN for fewer than 3
    high: float
    pairs: int


@result_type("rings")
class Rings(Result):
    """The NLL on circles around the weights in random planes; one row for each point.

    A point lies at w + r (cos φ d1 + sin φ d2). Where the model has BatchNorm, rows come with
    frozen and with re-estimated statistics.
    """

    batch_norm: np.ndarray = column("BatchNorm", "", "frozen or reestimated statistics")
    radius: np.ndarray = column("Distance r", "", "in units of the normalized directions")
    pair: np.ndarray = column("Direction pair", "", "number of the plane, from 0 on")
    angle: np.ndarray = column("Angle φ", "rad", "from the first direction")
    nll: np.ndarray = column("NLL", "nats", "mean over images; infinite or NaN on overflow")
    rise: np.ndarray = column("NLL increase", "nats", "NLL minus that of the model's weights")
    rise_error: np.ndarray = column(
        "NLL increase, standard error", "nats", "over images, each compared with itself"
    )
    accuracy: np.ndarray = column("Accuracy", "", "fraction of images classified correctly")
    has_batch_norm: bool = scalar(
        "Has BatchNorm", "", "whether the model has running statistics"
    )
    classes: int = scalar(
        "Classes", "", "of the model; chance level is log(classes)", default=0
    )
    normalization: str = scalar("Normalization", "", "of the directions", default="filter")
    loss: str = scalar("Loss", "", "name of the loss function", default="cross_entropy")

    def summary(self) -> Iterator[Ring]:
        """The mean increase at each distance with its spread and interval over pairs.

        Over angles φ and φ + π all odd orders of the loss cancel; on a quadratic with Hessian H
        the mean over angles is r²/4 (d1ᵀHd1 + d2ᵀHd2), exactly, for at least 3 angles.
        """
        for batch_norm in dict.fromkeys(self.batch_norm.tolist()):
            for radius in dict.fromkeys(self.radius.tolist()):
                means = self.pair_means(batch_norm, radius)
                n, rise = len(means), float(means.mean())
                finite = bool(np.isfinite(means).all())  # losses may overflow
                spread = float(means.std(ddof=1)) if n > 1 and finite else float("nan")
                error = spread / n**0.5 if n > 2 else float("nan")
                low, high = t_interval(rise, error, n)
                yield Ring(batch_norm, radius, rise, spread, low, high, n)

    def pair_means(self, batch_norm: str, radius: float) -> Float[np.ndarray, " pairs"]:
        """The mean increase over the angles of each direction pair, in nats."""
        rows = self.select((self.batch_norm == batch_norm) & (self.radius == radius))
        if not len(rows):
            raise InputError(
                "batch_norm and radius must have been measured, got "
                f"{batch_norm!r} and {radius}"
            )
        return np.array([rows.rise[rows.pair == pair].mean() for pair in np.unique(rows.pair)])

    def per_direction_pair(self) -> PerImage:
        """The mean increase over the angles of each direction pair, by treatment and distance.

        A model without BatchNorm has the same values for both treatments.
        """
        data = objective_label(self.provenance.split)
        quantities = {
            f"{rise_label(radius, treatment)}, {data}": self.pair_means(batch_norm, radius)
            for batch_norm in dict.fromkeys(self.batch_norm.tolist())
            for treatment in ([batch_norm] if self.has_batch_norm else BATCH_NORM_LABELS)
            for radius in dict.fromkeys(self.radius.tolist())
        }
        pairs = np.unique(self.pair)
        return PerImage(
            quantity=np.repeat(list(quantities), len(pairs)),
            image=np.tile(pairs, len(quantities)),
            value=np.concatenate(list(quantities.values())),
            over=DIRECTION_PAIRS,
            provenance=self.provenance,
        )

    def findings(self) -> tuple[Finding, ...]:
        """The increase at each distance, for each treatment of BatchNorm."""
        data = objective_label(self.provenance.split)
        findings = []
        for ring in self.summary():
            interval = f" [{ring.low:.3g}, {ring.high:.3g}]" if np.isfinite(ring.low) else ""
            spread = (
                f"; standard deviation {ring.spread:.2g} over {ring.pairs} direction pairs"
                if ring.pairs > 1
                else "; one direction pair"
            )
            treatment = f", {BATCH_NORM_LABELS[ring.batch_norm]}" * self.has_batch_norm
            findings.append(
                Finding(
                    f"{data} rises by {ring.rise:.3g}{interval} at distance {ring.radius:g}"
                    f"{treatment}{spread}, "
                    f"{images_text(self.provenance.images, self.provenance.split)}"
                )
            )
        missing = int((~np.isfinite(self.nll)).sum())
        if missing:
            findings.append(
                Finding(f"the NLL is not finite at {missing} of {len(self)} points")
            )
        return (*findings, *self._disagreement())

    def answers(self) -> tuple[Answer, ...]:
        """The increase at the middle distance, with its interval over direction pairs.

        A model without BatchNorm gives the same value for both treatments, so that it can be
        compared with one that has it.
        """
        rings = list(self.summary())
        radii = sorted({ring.radius for ring in rings})
        middle = radii[len(radii) // 2]
        data = objective_label(self.provenance.split)
        return tuple(
            Answer(
                questions.FLATNESS.text,
                f"{rise_label(ring.radius, treatment)}, {data}",
                ring.rise,
                ring.low,
                ring.high,
                unit="nats",
                over=DIRECTION_PAIRS,
                claim="C15",
            )
            for ring in rings
            if ring.radius == middle
            for treatment in ([ring.batch_norm] if self.has_batch_norm else BATCH_NORM_LABELS)
        )

    def _disagreement(self) -> list[Finding]:
        """VP105 at the distance where the two treatments of BatchNorm differ most."""
        rings = {(ring.batch_norm, ring.radius): ring for ring in self.summary()}
        radii = sorted({radius for _, radius in rings})
        pairs = [[rings.get((name, radius)) for name in BATCH_NORM_LABELS] for radius in radii]
        ratios = {
            radius: _ratio(frozen.rise, estimated.rise)
            for radius, (frozen, estimated) in zip(radii, pairs, strict=True)
            if frozen is not None and estimated is not None
        }
        beyond = [radius for radius, ratio in ratios.items() if ratio > _DISAGREEMENT]
        if not beyond:
            return []
        worst = max(beyond, key=lambda radius: ratios[radius])
        frozen, estimated = (
            interval_text(ring.rise, ring.low, ring.high)
            for name in BATCH_NORM_LABELS
            for ring in (rings[name, worst],)
        )
        images = images_text(self.provenance.images, self.provenance.split)
        number = rings["frozen", worst].pairs
        text = (
            f"the NLL increase depends on BatchNorm at {len(beyond)} of {len(ratios)} "
            f"distances, by ratio most at {worst:g}: {frozen} with frozen, {estimated} with "
            f"re-estimated statistics, over {number} direction "
            f"pair{'s' * (number > 1)} and {images}; "
            "another model is flatter or sharper only if it is so under both treatments"
        )
        return [Finding(text, code="VP105")]


def _ratio(first: float, second: float) -> float:
    """The larger of two increases over the smaller one, 0 where they cannot be compared.

    Infinite for a smaller one of at most 0; 0 where one is not finite or both are small.
    """
    low, high = sorted((first, second))
    if not np.isfinite([low, high]).all() or high <= _SMALLEST_INCREASE:
        return 0.0
    return high / low if low > 0 else float("inf")


def rise_label(radius: float, batch_norm: str) -> str:
    """Name of the increase of the NLL at a distance, by treatment of BatchNorm."""
    treatment = {"frozen": "frozen", "reestimated": "re-estimated"}[batch_norm]
    return f"NLL increase at distance {radius:g} (BatchNorm {treatment})"


@result_type("origin-curvature")
class OriginCurvature(Result):
    """Curvature of the NLL at the model's weights; one row for each direction of a plane."""

    pair: np.ndarray = column("Direction pair", "", "number of the plane, from 0 on")
    direction: np.ndarray = column("Direction", "", "a or b")
    slope: np.ndarray = column("Fitted slope", "nats", "first derivative along the direction")
    fitted: np.ndarray = column("Fitted curvature", "nats", "second derivative, from the grid")
    hessian: np.ndarray = column("Exact curvature", "nats", "dᵀHd; NaN without an objective")
    step: np.ndarray = column("Grid step", "", "between the points that were fitted")

    def findings(self) -> tuple[Finding, ...]:
        """Where the grid is too coarse to show the curvature at the weights."""
        with np.errstate(divide="ignore", invalid="ignore"):
            error = np.abs(self.fitted / self.hessian - 1)
        checked = int(np.isfinite(self.hessian).sum())
        if not checked:
            return ()
        return (
            Finding(
                f"curvature at the weights: the grid agrees with the Hessian within 10% along "
                f"{int((error < 0.1).sum())} of {checked} directions"
            ),
        )
