"""Loss landscapes: a model's loss over planes around its weights.

NLL, L2 and accuracy are three surfaces. A figure of their sum mainly shows the L2 term where
that is large, as in the figure of the reference.

Sources: Li et al. (2018), Visualizing the loss landscape of neural nets; Park and Kim (2022),
How do vision transformers work?, fig. 1a.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import nn

from visprism.anatomy.blocks.dissect import dissect
from visprism.core.errors import InputError
from visprism.core.processes import gather, share
from visprism.core.run import DEFAULT_RUN, Run
from visprism.estimates.findings import Finding
from visprism.loss.double_backward import BatchNorm, check_batch_norm
from visprism.loss.eigenvalues import objective_label
from visprism.loss.objective import (
    Loss,
    Objective,
    Selection,
    check_weight_decay,
    cross_entropy,
    selected,
)
from visprism.loss.planes import Plane, random_planes, squared_norms
from visprism.loss.points import (
    TREATMENTS,
    Evaluation,
    Point,
    PointLosses,
    batch_norms,
    loss_name,
    over_images,
    read_samples,
)
from visprism.loss.products import Products
from visprism.passes.batches import check_evaluation_mode, first_images, in_turn
from visprism.table.result import Result, Texts, column, estimate, result_type, scalar

BATCH_NORM_LABELS = {
    "frozen": "frozen BatchNorm statistics",
    "reestimated": "re-estimated BatchNorm statistics",
}

_MAX_ROUNDING = 1e-3  # nats by which a lower precision may change the NLL without a finding

# Central differences of the first and the second derivative, by the number of points per side.
_STENCILS = {
    1: (np.array([-1, 0, 1]) / 2, np.array([1, -2, 1])),
    2: (np.array([1, -8, 0, 8, -1]) / 12, np.array([-1, 16, -30, 16, -1]) / 12),
}


@result_type("landscape")
class LossSurface(Result):
    """Loss and accuracy over planes in the space of parameters; one row for each point.

    `nll` and `l2` are separate surfaces; `objective` is their sum. Intervals are over images.
    """

    pair: np.ndarray = column("Direction pair", "", "number of the plane, from 0")
    a: np.ndarray = column("a", "", "coordinate along the first direction; 0 at the weights")
    b: np.ndarray = column("b", "", "coordinate along the second direction; 0 at the weights")
    nll: np.ndarray = estimate("NLL", "nats", "mean over images; infinite or NaN on overflow")
    rise: np.ndarray = estimate(
        "NLL increase", "nats", "NLL minus the NLL of the model's weights, image by image"
    )
    l2: np.ndarray = column("L2 term", "nats", "half the weight decay times the squared norm")
    accuracy: np.ndarray = estimate("Accuracy", "", "fraction of images classified correctly")
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
        rows = self.select(self.pair == pair)
        return np.asarray(getattr(rows, quantity)).reshape(len(np.unique(rows.b)), -1)

    def sentences(self) -> Iterator[str | Finding]:
        """The range of the surface, its BatchNorm statistics, and what limits its accuracy."""
        finite = self.rise[np.isfinite(self.rise)]
        if len(finite):
            planes = len(np.unique(self.pair))
            statistics = f"; {BATCH_NORM_LABELS[self.batch_norm]}" * self.has_batch_norm
            yield (
                f"{objective_label(self.provenance.split)} on {planes} "
                f"plane{'s' * (planes > 1)}: increase {finite.min():.3g} to {finite.max():.3g} "
                f"nats for a from {self.a.min():g} to {self.a.max():g} and b from "
                f"{self.b.min():g} to {self.b.max():g}{statistics}, {self.images_text}"
            )
        if self.rounding > _MAX_ROUNDING:
            yield (
                f"{self.provenance.precision} changes the NLL of the model's weights by "
                f"{self.rounding:.2g} nats; smaller differences are not significant"
            )
        yield from not_finite(np.asarray(self.nll))


def not_finite(nll: Float[np.ndarray, " n"]) -> list[Finding]:
    """At how many points the loss overflows."""
    missing = int((~np.isfinite(nll)).sum())
    text = f"the NLL is not finite at {missing} of {len(nll)} points"
    return [Finding(text)] if missing else []


@result_type("origin-curvature")
class OriginCurvature(Result):
    """Curvature of the NLL at the model's weights; one row for each direction of a plane."""

    pair: np.ndarray = column("Direction pair", "", "number of the plane, from 0")
    direction: Texts = column("Direction", "", "a or b")
    slope: np.ndarray = column("Fitted slope", "nats", "first derivative along the direction")
    fitted: np.ndarray = column("Fitted curvature", "nats", "second derivative, from the grid")
    hessian: np.ndarray = column("Exact curvature", "nats", "dᵀHd; NaN without an objective")
    step: np.ndarray = column("Grid step", "", "between the points that were fitted")

    def sentences(self) -> Iterator[str | Finding]:
        """Where the grid is too coarse to show the curvature at the weights."""
        with np.errstate(divide="ignore", invalid="ignore"):
            error = np.abs(self.fitted / self.hessian - 1)
        checked = int(np.isfinite(self.hessian).sum())
        text = (
            f"curvature at the weights: the grid agrees with the Hessian within 10% along "
            f"{int((error < 0.1).sum())} of {checked} directions"
        )
        if checked:
            yield text


def landscape(
    model: nn.Module,
    batches: Iterable,
    planes: Sequence[Plane] | None = None,
    *,
    loss: Loss = cross_entropy,
    weight_decay: float = 0.0,
    decayed: Selection = "all",
    batch_norm: BatchNorm = "frozen",
    run: Run = DEFAULT_RUN,
) -> LossSurface:
    """Mean loss, L2 term and accuracy at every point of the planes, on the same samples.

    At the point (a, b) the weights are w + a d1 + b d2, with buffers and everything else as in
    the model. The batches are read once and cached, so that an augmentation is the same at
    every point. Under ``torchrun`` each process measures its share of the points. On exit the
    model is restored bit for bit.

    Cost: one forward pass of all images for each point, up to two with re-estimated statistics,
    and three times the memory of the parameters that move.

    Args:
        model: any classifier, in evaluation mode.
        batches: of (images, targets); targets are classes (B,) or probabilities (B, K).
        planes: planes with their grids; one plane of two random directions by default.
        loss: of logits and targets, one value for each image.
        weight_decay: of the L2 term, (weight_decay / 2) times the squared norm of the decayed
            parameters, which is a separate surface.
        decayed: which parameters decay; see `Selection`.
        batch_norm: "frozen" running statistics, or "reestimated" from these images (the first
            512, or fewer large ones) as one batch, at each point.
        run: device and precision, seed of random planes, progress, provenance, deadline.

    Returns:
        The surfaces, one row for each point; bit for bit the same for the same arguments.
    """
    check_evaluation_mode(model)
    check_batch_norm(batch_norm, TREATMENTS, "landscapes")
    check_weight_decay(weight_decay)
    planes = random_planes(model, seed=run.seed) if planes is None else list(planes)
    points = [(i, a, b) for i, plane in enumerate(planes) for a, b in plane.points()]
    samples = read_samples(batches, run.compute)
    trial = first_images(samples.batches[0][0])
    named = dict(model.named_parameters())
    decaying = {
        name: named[name].detach()
        for name in selected(model, decayed, lambda: dissect(model, trial))
    }
    evaluation = Evaluation(model, samples, loss, batch_norm, run)
    losses = measure_points(evaluation, planes, points, "landscape")
    pair, a, b = (np.array(column) for column in zip(*points, strict=True))
    return LossSurface(
        pair=pair,
        a=a,
        b=b,
        nll=over_images(losses.nll),
        rise=over_images(losses.rises),
        accuracy=over_images(losses.correct),
        l2=weight_decay / 2 * np.concatenate([squared_norms(p, decaying) for p in planes]),
        classes=losses.origin.classes,
        weight_decay=weight_decay,
        plane=planes[0].kind,
        normalization=planes[0].normalization,
        batch_norm=batch_norm,
        has_batch_norm=bool(batch_norms(model)),
        loss=loss_name(loss),
        rounding=losses.rounding,
        provenance=samples.provenance(run),
    )


@dataclass(frozen=True)
class PointsByImage:
    """Losses of the same images at several points, and at the model's weights."""

    nll: Float[np.ndarray, "points n"]
    correct: Float[np.ndarray, "points n"]
    origin: PointLosses
    rounding: float  # change of the mean NLL at the weights by a lower precision

    @property
    def rises(self) -> Float[np.ndarray, "points n"]:
        """The increase of each image's loss over that at the weights."""
        with np.errstate(invalid="ignore", over="ignore"):  # losses may overflow
            return self.nll - self.origin.nll


def measure_points(
    evaluation: Evaluation, planes: Sequence[Plane], points: Sequence[Point], label: str
) -> PointsByImage:
    """The losses at each point; several processes take turns with the points."""
    run = evaluation.run
    full = replace(run, compute=replace(run.compute, precision="fp32"))
    shared = list(share(points))
    passes = len(shared) + (1 if full == run else 2)
    with (
        evaluation.prepared(),
        run.ticks(range(passes * evaluation.ticks_per_point), 1, label) as tick,
    ):
        origin = exact = evaluation.origin(tick)
        if full != run:
            exact = replace(evaluation, run=full).losses(tick)
        losses = evaluation.points(planes, shared, tick)
    nll, correct = zip(*in_turn(gather([(at.nll, at.correct) for at in losses])), strict=True)
    rounding = abs(float(origin.nll.mean() - exact.nll.mean()))
    return PointsByImage(np.stack(nll), np.stack(correct), origin, rounding)


def curvature_at_origin(
    landscape: LossSurface, planes: Sequence[Plane] = (), objective: Objective | None = None
) -> OriginCurvature:
    """The second derivative of the NLL along each direction, from the points next to 0.

    With f the loss at -2h ... 2h, (-f(-2h) + 16 f(-h) - 30 f(0) + 16 f(h) - f(2h)) / 12 h²,
    which is exact for polynomials up to degree 5; from three points where the grid has no five.
    Planes whose grid does not contain the model's weights are omitted. Where the exact value
    differs, the curvature changes within a grid step: a finer grid is closer.

    With an objective, over all parameters and without weight decay, and the planes, the result
    also holds the exact values. Cost: one Hessian product for each direction.

    Source: Abramowitz and Stegun (1972), Handbook of mathematical functions, 25.3.24.
    """
    rows = []
    for pair in np.unique(landscape.pair).tolist():
        plane = landscape.select(landscape.pair == pair)
        for name, along, across in (("a", plane.a, plane.b), ("b", plane.b, plane.a)):
            line = np.abs(across) < 1e-12
            order = np.argsort(along[line])
            x, f = along[line][order], np.asarray(plane.nll)[line][order]
            middle = len(x) // 2
            if len(x) < 3 or abs(x[middle]) > 1e-12:
                continue
            h, reach = x[middle + 1] - x[middle], min(2, middle)
            near = f[middle - reach : middle + reach + 1]
            slope, second = (weights @ near for weights in _STENCILS[reach])
            rows.append((pair, name, slope / h, second / h**2, h))
    if not rows:
        raise InputError(
            "landscape must contain the model's weights at the center of a plane. Use random "
            "directions."
        )
    pair, direction, slope, fitted, step = (np.array(c) for c in zip(*rows, strict=True))
    hessian = np.full(len(rows), np.nan)
    if objective is not None:
        hessian = _exact([row[:2] for row in rows], planes, objective)
    return OriginCurvature(
        pair=pair,
        direction=direction,
        slope=slope,
        fitted=fitted,
        hessian=hessian,
        step=step,
        provenance=landscape.provenance,
    )


def _exact(
    wanted: Sequence[tuple[int, str]], planes: Sequence[Plane], objective: Objective
) -> Float[np.ndarray, " n"]:
    """dᵀHd for each direction."""
    if objective.weight_decay:
        raise InputError(
            f"objective must have weight_decay=0, as the NLL of a landscape has, got "
            f"{objective.weight_decay}"
        )
    vectors = []
    for pair, name in wanted:
        step = planes[pair].first if name == "a" else planes[pair].second
        parts = (step.get(n, torch.zeros_like(objective.tensors[n])) for n in objective.names)
        vectors.append(torch.cat([part.flatten() for part in parts]).to(objective.theta))
    rows = torch.stack(vectors)
    products = Products(objective)(rows)
    return (rows.cpu().double() * products.cpu().double()).sum(1).numpy()
