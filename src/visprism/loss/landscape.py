"""Loss landscapes: a model's loss over planes around its weights.

The surface is of the NLL. A figure of NLL + L2, as in the second source, mainly shows the
squared norm of the weights where the L2 term is large.

Sources: Li et al. (2018), Visualizing the loss landscape of neural nets; Park and Kim (2022),
How do vision transformers work?, fig. 1a.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float
from torch import nn

from visprism.core.processes import gather, share
from visprism.core.run import DEFAULT_RUN, Run
from visprism.estimates.findings import Finding
from visprism.loss.double_backward import BatchNorm, check_batch_norm
from visprism.loss.eigenvalues import objective_label
from visprism.loss.objective import (
    Loss,
    cross_entropy,
)
from visprism.loss.planes import Plane, Projection, random_planes
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
from visprism.passes.batches import check_evaluation_mode, in_turn
from visprism.table.result import Result, column, estimate, result_type, scalar

BATCH_NORM_LABELS = {
    "frozen": "frozen BatchNorm statistics",
    "reestimated": "re-estimated BatchNorm statistics",
}

_MAX_ROUNDING = 1e-3  # nats by which a lower precision may change the NLL without a finding


@result_type(
    "landscape",
    "Loss landscape",
    figures={
        "": {"path": Projection},
        "slices": {"view": "slices"},
        "accuracy": {"quantity": "accuracy", "path": Projection},
    },
    table=False,
)
class LossSurface(Result):
    """Loss and accuracy over planes in the space of parameters; one row for each point.

    The NLL at the weights (cross) and around them along two directions, by default random
    and filter-normalized, with frozen BatchNorm statistics. The bold contour is chance
    level, log(classes); beyond it, in gray, predictions are worse than a guess, and the
    loss grows with the scale of the logits. Compare models by the increase on circles, not
    by the look of a surface. Checkpoints are points on a line, in their order.

    Intervals are over images.
    """

    pair: np.ndarray = column("Direction pair", "", "number of the plane, from 0")
    a: np.ndarray = column("a", "", "coordinate along the first direction; 0 at the weights")
    b: np.ndarray = column("b", "", "coordinate along the second direction; 0 at the weights")
    nll: np.ndarray = estimate("NLL", "nats", "mean over images; infinite or NaN on overflow")
    rise: np.ndarray = estimate(
        "NLL increase", "nats", "NLL minus the NLL of the model's weights, image by image"
    )
    accuracy: np.ndarray = estimate("Accuracy", "", "fraction of images classified correctly")
    classes: int = scalar(
        "Classes", "", "of the model; chance level is log(classes)", default=0
    )
    plane: str = scalar("Plane", "", "random or given", default="random")
    normalization: str = scalar("Normalization", "", "of random directions", default="filter")
    batch_norm: str = scalar("BatchNorm", "", "frozen or reestimated", default="frozen")
    has_batch_norm: bool = scalar(
        "Has BatchNorm", "", "whether the model has running statistics", default=True
    )
    loss: str = scalar("Loss", "", "name of the loss function", default="cross_entropy")
    rounding: float = scalar(
        "Rounding", "nats", "change of the NLL at the weights by a lower precision", default=0.0
    )

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
        missing = int((~np.isfinite(self.nll)).sum())
        if missing:
            yield Finding(f"the NLL is not finite at {missing} of {len(self)} points")


def landscape(
    model: nn.Module,
    batches: Iterable,
    planes: Sequence[Plane] | None = None,
    *,
    loss: Loss = cross_entropy,
    batch_norm: BatchNorm = "frozen",
    run: Run = DEFAULT_RUN,
) -> LossSurface:
    """Mean loss and accuracy at every point of the planes, on the same samples.

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
        batch_norm: "frozen" running statistics, or "reestimated" from these images (the first
            512, or fewer large ones) as one batch, at each point.
        run: device and precision, seed of random planes, progress, provenance, deadline.

    Returns:
        The surfaces, one row for each point; bit for bit the same for the same arguments.
    """
    check_evaluation_mode(model)
    check_batch_norm(batch_norm, TREATMENTS, "landscapes")
    planes = random_planes(model, seed=run.seed) if planes is None else list(planes)
    points = [(i, a, b) for i, plane in enumerate(planes) for a, b in plane.points()]
    samples = read_samples(batches, run.compute)
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
        classes=losses.origin.classes,
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
