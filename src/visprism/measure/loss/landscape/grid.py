"""Loss landscapes: a model's loss over planes through its weights.

NLL, L2 and accuracy are three surfaces. A figure of their sum mainly shows the L2 term where
that is large, as in the figure of the reference.

Sources: Li et al. (2018), Visualizing the loss landscape of neural nets; Park and Kim (2022),
How do vision transformers work?, fig. 1a.
"""

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import numpy as np
import torch
from torch import Tensor, nn

from visprism.anatomy import dissect
from visprism.anatomy.trace.operations import tensors_in
from visprism.core.errors import InputError
from visprism.core.files import check_named
from visprism.core.processes import gather, share
from visprism.core.run import DEFAULT_RUN, Run
from visprism.measure.loss.batch_norm import BatchNorm, batch_norms, check_batch_norm
from visprism.measure.loss.cached_batches import CachedBatches, cache_batches
from visprism.measure.loss.landscape.checkpoint import (
    Rows,
    landscape_fingerprint,
    read_partial,
    saved,
)
from visprism.measure.loss.landscape.evaluation import Evaluation, Point, loss_name
from visprism.measure.loss.landscape.planes import Plane, random_planes, squared_norms
from visprism.measure.loss.landscape.point_losses import COLUMNS
from visprism.measure.loss.losses import Loss, cross_entropy
from visprism.measure.loss.objective import check_weight_decay
from visprism.measure.loss.parameter_selection import Selection, selected
from visprism.passes.batches import check_evaluation_mode
from visprism.results.landscape import Landscape


def landscape(
    model: nn.Module,
    batches: Iterable,
    planes: Sequence[Plane] | None = None,
    *,
    loss: Loss = cross_entropy,
    weight_decay: float = 0.0,
    decayed: Selection = "all",
    batch_norm: BatchNorm = "frozen",
    batch_size: int | None = None,
    resume: Path | None = None,
    run: Run = DEFAULT_RUN,
) -> Landscape:
    """Mean loss, L2 term and accuracy at every point of the planes, on the same samples.

    At the point (a, b) the weights are w + a d1 + b d2, with buffers and everything else as in
    the model. The batches are read once and cached, so that an augmentation is the same at
    every point. Under ``torchrun`` each process measures its share of the points. On exit the
    model is restored bit for bit.

    Cost: one forward pass of all images for each point, two with re-estimated statistics, less
    what folding BatchNorm into convolutions saves, and three times the memory of the parameters
    that move.

    Args:
        model: any classifier, in evaluation mode.
        batches: of (images, targets); targets are classes (B,) or probabilities (B, K).
        planes: planes with their grids; one plane of two random directions by default.
        loss: of logits and targets, one value for each image.
        weight_decay: of the L2 term, (weight_decay / 2) times the squared norm of the decayed
            parameters, which is a separate surface.
        decayed: which parameters decay; see `Selection`.
        batch_norm: "frozen" running statistics, or "reestimated" from these images at each
            point.
        batch_size: images per batch; by default the fastest size.
        resume: file for the points that are complete, from which an interrupted run resumes;
            `discard_partial` deletes it.
        run: device and precision, seed of random planes, progress, provenance, deadline.

    Returns:
        The surfaces, one row for each point; bit for bit the same for the same arguments.

    Raises:
        InputError: if the model is in training mode, the data has no labels, the loss of the
            model's weights is not finite, the model is not deterministic, or `resume` is of
            another landscape.
        TimeBudgetError: after the deadline of the run.
    """
    check_evaluation_mode(model)
    check_batch_norm(batch_norm, Evaluation.supported, "landscapes")
    check_weight_decay(weight_decay)
    planes = random_planes(model, seed=run.seed) if planes is None else list(planes)
    if not planes:
        raise InputError("planes must have at least one plane, got none")
    points = [(i, a, b) for i, plane in enumerate(planes) for a, b in plane.points()]
    samples = cache_batches(batches, batch_size=batch_size, compute=run.compute)
    named = dict(model.named_parameters())
    decaying = {
        name: named[name].detach()
        for name in selected(model, decayed, lambda: dissect(model, samples.first_images()))
    }
    prints = _fingerprints(model, samples, planes, points, loss, batch_norm, run)
    evaluation = Evaluation(model, samples, loss, batch_norm, run)
    rows, classes, rounding = _measure(evaluation, planes, points, resume, prints)
    table = np.array([rows[number] for number in range(len(points))]).T
    pair, a, b = (np.array(column) for column in zip(*points, strict=True))
    return Landscape(
        pair=pair,
        a=a,
        b=b,
        **dict(zip(COLUMNS, table, strict=True)),
        l2=weight_decay / 2 * np.concatenate([squared_norms(p, decaying) for p in planes]),
        classes=classes,
        weight_decay=weight_decay,
        plane=planes[0].kind,
        normalization=planes[0].normalization,
        batch_norm=batch_norm,
        has_batch_norm=bool(batch_norms(model)),
        loss=loss_name(loss),
        rounding=rounding,
        provenance=run.measured(
            images=len(samples),
            batch_size=samples.batch_size,
            image_shape=samples.image_shape,
        ),
    )


def seconds_per_point(
    model: nn.Module,
    batches: Iterable,
    *,
    loss: Loss = cross_entropy,
    batch_norm: BatchNorm = "frozen",
    batch_size: int | None = None,
    run: Run = DEFAULT_RUN,
) -> float:
    """Seconds of one point of a landscape on these batches.

    Cost: the losses of two points; the first is not timed.
    """
    check_evaluation_mode(model)
    check_batch_norm(batch_norm, Evaluation.supported, "landscapes")
    samples = cache_batches(batches, batch_size=batch_size, compute=run.compute)
    with Evaluation(model, samples, loss, batch_norm, run).prepared() as evaluation:
        evaluation.losses(run.check_time)
        begin = perf_counter()
        evaluation.losses(run.check_time)
        return perf_counter() - begin


def _measure(
    evaluation: Evaluation,
    planes: Sequence[Plane],
    points: Sequence[Point],
    resume: Path | None,
    prints: dict[str, str],
) -> tuple[Rows, int, float]:
    """A row for each point, the number of classes, and the rounding at the origin."""
    run = evaluation.run
    resume = None if resume is None else Path(resume)
    if resume is not None:
        check_named(resume)
    rows = read_partial(resume, prints) if resume else {}
    remaining = list(share([i for i in range(len(points)) if i not in rows]))
    measured: Rows = {}
    passes = len(remaining) + (1 if run.compute.precision == "fp32" else 2)
    with (
        evaluation.prepared() as ready,
        run.ticks(range(passes * ready.ticks_per_point), 1, "landscape") as tick,
    ):
        origin = exact = ready.origin(tick)
        if run.compute.precision != "fp32":
            full = replace(run, compute=replace(run.compute, precision="fp32"))
            exact = replace(ready, run=full).losses(tick)
        with saved(resume, prints, rows, measured) as save:
            numbered = ((number, points[number]) for number in remaining)
            with closing(ready.points(planes, numbered, tick)) as evaluated:
                for number, losses in evaluated:
                    measured[number] = losses.summary(origin)
                    save()
    for part in gather(measured):
        rows |= part
    return rows, origin.classes, abs(float(origin.nll.mean() - exact.nll.mean()))


def _fingerprints(
    model: nn.Module,
    samples: CachedBatches,
    planes: Sequence[Plane],
    points: Sequence[Point],
    loss: Loss,
    batch_norm: str,
    run: Run,
) -> dict[str, str]:
    """Of the model, the data and the settings, which a partial landscape must share."""
    directions: list[Tensor] = [
        tensor for p in planes for d in (p.first, p.second) for tensor in d.values()
    ]
    names = [tuple(plane.first) for plane in planes]
    settings = (loss_name(loss), batch_norm, samples.batch_size, run.compute)
    return {
        "model": landscape_fingerprint(tensors_in(model.state_dict()), type(model).__name__),
        "data": landscape_fingerprint(samples.tensors()),
        "settings": landscape_fingerprint(
            directions, points, names, *settings, torch.__version__
        ),
    }
