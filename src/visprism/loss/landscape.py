"""Loss landscapes: a model's loss over planes and on circles around its weights.

NLL, L2 and accuracy are three surfaces. A figure of their sum mainly shows the L2 term where
that is large, as in the figure of the reference.

Sources: Li et al. (2018), Visualizing the loss landscape of neural nets; Park and Kim (2022),
How do vision transformers work?, fig. 1a.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import product

import numpy as np
import torch
from jaxtyping import Float
from torch import nn

from visprism.anatomy import dissect
from visprism.core.errors import InputError
from visprism.core.processes import add_up, gather, share
from visprism.core.run import DEFAULT_RUN, Run
from visprism.loss.double_backward import BatchNorm, check_batch_norm
from visprism.loss.objective import Loss, Objective, check_weight_decay, cross_entropy
from visprism.loss.parameter_selection import Selection, selected
from visprism.loss.planes import Plane, random_planes, squared_norms
from visprism.loss.points import (
    COLUMNS,
    TREATMENTS,
    Evaluation,
    Point,
    PointLosses,
    Samples,
    batch_norms,
    loss_name,
    read_samples,
)
from visprism.loss.products import Products
from visprism.passes.batches import check_evaluation_mode, first_images
from visprism.results.landscape import (
    BATCH_NORM_LABELS,
    Landscape,
    OriginCurvature,
    Rings,
    rise_label,
)
from visprism.results.per_image import PerImage

RADII = (0.1, 0.5, 1.0)  # of circles, in units of filter-normalized directions

# Central differences of the first and the second derivative, by the number of points per side.
_STENCILS = {
    1: (np.array([-1, 0, 1]) / 2, np.array([1, -2, 1])),
    2: (np.array([1, -8, 0, 8, -1]) / 12, np.array([-1, 16, -30, 16, -1]) / 12),
}


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
) -> Landscape:
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
    if not planes:
        raise InputError("planes must have at least one plane, got none")
    points = [(i, a, b) for i, plane in enumerate(planes) for a, b in plane.points()]
    samples = read_samples(batches, run.compute)
    trial = first_images(samples.batches[0][0])
    named = dict(model.named_parameters())
    decaying = {
        name: named[name].detach()
        for name in selected(model, decayed, lambda: dissect(model, trial))
    }
    evaluation = Evaluation(model, samples, loss, batch_norm, run)
    rows, origin, rounding = _measure(evaluation, planes, points, "landscape")
    pair, a, b = (np.array(column) for column in zip(*points, strict=True))
    return Landscape(
        pair=pair,
        a=a,
        b=b,
        **dict(zip(COLUMNS, np.array(rows).T, strict=True)),
        l2=weight_decay / 2 * np.concatenate([squared_norms(p, decaying) for p in planes]),
        classes=origin.classes,
        weight_decay=weight_decay,
        plane=planes[0].kind,
        normalization=planes[0].normalization,
        batch_norm=batch_norm,
        has_batch_norm=bool(batch_norms(model)),
        loss=loss_name(loss),
        rounding=rounding,
        provenance=samples.provenance(run),
    )


def _measure(
    evaluation: Evaluation,
    planes: Sequence[Plane],
    points: Sequence[Point],
    label: str,
    visit: Callable[[int, Float[np.ndarray, " n"]], None] | None = None,
) -> tuple[list[tuple[float, ...]], PointLosses, float]:
    """The summary of each point, the losses at the model's weights, and their rounding.

    `visit` is called with the number of each point of this process, and the rise of each
    image's loss.
    """
    run = evaluation.run
    full = replace(run, compute=replace(run.compute, precision="fp32"))
    numbers = list(share(range(len(points))))
    passes = len(numbers) + (1 if full == run else 2)
    summaries: dict[int, tuple[float, ...]] = {}
    with (
        evaluation.prepared(),
        run.ticks(range(passes * evaluation.ticks_per_point), 1, label) as tick,
    ):
        origin = exact = evaluation.origin(tick)
        if full != run:
            exact = replace(evaluation, run=full).losses(tick)
        numbered = ((number, points[number]) for number in numbers)
        with closing(evaluation.points(planes, numbered, tick)) as evaluated:
            for number, losses in evaluated:
                summaries[number] = losses.summary(origin)
                if visit is not None:
                    visit(number, losses.rises(origin))
    for part in gather(summaries):
        summaries |= part
    rounding = abs(float(origin.nll.mean() - exact.nll.mean()))
    return [summaries[number] for number in range(len(points))], origin, rounding


def rings(
    model: nn.Module,
    batches: Iterable,
    *,
    radii: Sequence[float] = RADII,
    angles: int = 8,
    pairs: int = 3,
    loss: Loss = cross_entropy,
    treatments: Sequence[BatchNorm] | None = None,
    normalization: str = "filter",
    perturb_positions: bool = False,
    run: Run = DEFAULT_RUN,
) -> tuple[Rings, PerImage]:
    """The loss on circles around the model's weights, in planes of random directions.

    The points are w + r (cos φ d1 + sin φ d2) for equidistant angles φ, so that the distance is
    exact, whatever the grid of a surface is. On a quadratic with Hessian H the mean over the
    angles of one pair is r²/4 (d1ᵀHd1 + d2ᵀHd2).

    Where the model has BatchNorm, its running statistics do not fit weights elsewhere, which a
    model with LayerNorm does not suffer from: both treatments are measured by default.

    Cost: pairs x radii x angles forward passes of all images, and up to twice as many again
    with re-estimated statistics.

    Args:
        model: any classifier, in evaluation mode.
        batches: of (images, targets), as in `landscape`.
        radii: distances, in units of the directions.
        angles: number of points on each circle, even and at least 4.
        pairs: number of planes, each with two directions; at least 3 for an interval.
        loss: of logits and targets, one value for each image.
        treatments: of BatchNorm; None: "frozen", and "reestimated" where the model has any.
        normalization: of the directions; see `gaussian`.
        perturb_positions: whether random directions also change position embeddings.
        run: device and precision, seed of the directions, progress, provenance, deadline.

    Returns:
        One row for each point, and the mean increase of each image at each distance.
    """
    check_evaluation_mode(model)
    if not len(radii) or min(radii) <= 0:
        raise InputError(f"radii must be positive, got {tuple(radii)}")
    if angles < 4 or angles % 2:
        raise InputError(f"angles must be even and at least 4, got {angles}")
    has_batch_norm = bool(batch_norms(model))
    if treatments is None:
        treatments = ("frozen", "reestimated") if has_batch_norm else ("frozen",)
    if not treatments:
        raise InputError("treatments must name at least one treatment of BatchNorm, got none")
    for treatment in treatments:
        check_batch_norm(treatment, TREATMENTS, "landscapes")
    planes = random_planes(
        model,
        pairs=pairs,
        normalization=normalization,
        perturb_positions=perturb_positions,
        seed=run.seed,
    )
    samples = read_samples(batches, run.compute)
    circle = 2 * np.pi * np.arange(angles) / angles
    keys = list(product(range(pairs), radii, circle.tolist()))
    points = [(pair, r * float(np.cos(phi)), r * float(np.sin(phi))) for pair, r, phi in keys]
    rows: list[tuple] = []
    means: dict[str, dict[float, np.ndarray]] = {}
    classes = 0
    for treatment in treatments:
        evaluation = Evaluation(model, samples, loss, treatment, run)
        sums = {radius: np.zeros(len(samples)) for radius in radii}

        def visit(number: int, rises: np.ndarray, sums: dict = sums) -> None:
            sums[keys[number][1]] += rises

        label = f"circles, {BATCH_NORM_LABELS[treatment]}"
        summaries, origin, _ = _measure(evaluation, planes, points, label, visit)
        classes = origin.classes
        means[treatment] = {
            r: add_up(torch.from_numpy(s)).numpy() / (pairs * angles) for r, s in sums.items()
        }
        rows += [
            (treatment, r, pair, phi, nll, rise, rise_error, accuracy)
            for (pair, r, phi), (nll, _, rise, rise_error, accuracy, _) in zip(
                keys, summaries, strict=True
            )
        ]
    names = ("batch_norm", "radius", "pair", "angle", "nll", "rise", "rise_error", "accuracy")
    columns = map(np.array, zip(*rows, strict=True))
    result = Rings(
        **dict(zip(names, columns, strict=True)),
        has_batch_norm=has_batch_norm,
        classes=classes,
        normalization=normalization,
        loss=loss_name(loss),
        provenance=samples.provenance(run),
    )
    return result, _per_image(result, means, samples)


def _per_image(
    result: Rings, means: dict[str, dict[float, np.ndarray]], samples: Samples
) -> PerImage:
    """The mean increase of each image; for both treatments where there is no BatchNorm."""
    pairs = f"in the same {len(np.unique(result.pair))} direction pairs"
    quantities: dict[str, np.ndarray] = {}
    for treatment, by_radius in means.items():
        names = [treatment] if result.has_batch_norm else list(BATCH_NORM_LABELS)
        for radius, values in by_radius.items():
            labels = (f"{rise_label(radius, name)}, {pairs}" for name in names)
            quantities |= dict.fromkeys(labels, values)
    images = len(samples)
    return PerImage(
        quantity=np.repeat(list(quantities), images),
        image=np.tile(np.arange(images), len(quantities)),
        value=np.concatenate(list(quantities.values())),
        provenance=result.provenance,
    )


def curvature_at_origin(
    landscape: Landscape,
    planes: Sequence[Plane] = (),
    objective: Objective | None = None,
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
            x, f = along[line][order], plane.nll[line][order]
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
) -> np.ndarray:
    """dᵀHd for each direction."""
    if objective.weight_decay:
        raise InputError(
            f"objective must have weight_decay=0, as the NLL of a landscape has, got "
            f"{objective.weight_decay}"
        )
    if max(pair for pair, _ in wanted) >= len(planes):
        raise InputError(
            f"planes must be those of the landscape ({max(p for p, _ in wanted) + 1}), got "
            f"{len(planes)}"
        )
    vectors = []
    for pair, name in wanted:
        step = planes[pair].first if name == "a" else planes[pair].second
        parts = (step.get(n, torch.zeros_like(objective.tensors[n])) for n in objective.names)
        vectors.append(torch.cat([part.flatten() for part in parts]).to(objective.theta))
    rows = torch.stack(vectors)
    products = Products(objective)(rows)
    return (rows.cpu().double() * products.cpu().double()).sum(1).numpy()
