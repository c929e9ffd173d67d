"""Circles around the weights: the increase of the loss at exact distances.

Source: Park and Kim (2022), fig. 1a, from whose surfaces such increases are read.
"""

from collections.abc import Iterable, Sequence
from contextlib import closing
from itertools import product

import numpy as np
import torch
from jaxtyping import Float
from torch import nn

from visprism.core.errors import InputError
from visprism.core.processes import add_up, gather, share
from visprism.core.run import DEFAULT_RUN, Run
from visprism.measure.loss.batch_norm import BatchNorm, batch_norms, check_batch_norm
from visprism.measure.loss.cached_batches import CachedBatches, cache_batches
from visprism.measure.loss.landscape.evaluation import Evaluation, Point, loss_name
from visprism.measure.loss.landscape.planes import Plane, random_planes
from visprism.measure.loss.losses import Loss, cross_entropy
from visprism.passes.batches import check_evaluation_mode
from visprism.results.landscape import BATCH_NORM_LABELS, Rings, rise_label
from visprism.results.per_image import PerImage

RADII = (0.1, 0.5, 1.0)  # in units of filter-normalized directions


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
    batch_size: int | None = None,
    run: Run = DEFAULT_RUN,
) -> tuple[Rings, PerImage]:
    """The loss on circles around the model's weights, in planes of random directions.

    The points are w + r (cos φ d1 + sin φ d2) for equidistant angles φ, so that the distance is
    exact, whatever the grid of a surface is. On a quadratic with Hessian H the mean over the
    angles of one pair is r²/4 (d1ᵀHd1 + d2ᵀHd2).

    Where the model has BatchNorm, its running statistics do not fit weights elsewhere, which a
    model with LayerNorm does not suffer from: both treatments are measured by default.

    Cost: pairs x radii x angles forward passes of all images, and twice as many again with
    re-estimated statistics.

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
        batch_size: images per batch; by default the fastest size.
        run: device and precision, seed of the directions, progress, provenance, deadline.

    Returns:
        One row for each point, and the mean increase of each image at each distance.

    Raises:
        InputError: as `landscape`; if a radius is not positive or the angles are not even.
        TimeBudgetError: after the deadline of the run.
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
        check_batch_norm(treatment, Evaluation.supported, "landscapes")
    planes = random_planes(
        model,
        pairs=pairs,
        normalization=normalization,
        perturb_positions=perturb_positions,
        seed=run.seed,
    )
    samples = cache_batches(batches, batch_size=batch_size, compute=run.compute)
    circle = 2 * np.pi * np.arange(angles) / angles
    keys = list(product(range(pairs), radii, circle.tolist()))
    points = [(pair, r * float(np.cos(phi)), r * float(np.sin(phi))) for pair, r, phi in keys]
    rows: list[tuple] = []
    means: dict[str, dict[float, np.ndarray]] = {}
    classes = 0
    for treatment in treatments:
        evaluation = Evaluation(model, samples, loss, treatment, run)
        values, means[treatment], classes = _measure(evaluation, planes, points, keys)
        rows += [
            (treatment, r, pair, phi, *value)
            for (pair, r, phi), value in zip(keys, values, strict=True)
        ]
    names = ("batch_norm", "radius", "pair", "angle", "nll", "rise", "rise_error", "accuracy")
    columns = map(np.array, zip(*rows, strict=True))
    result = Rings(
        **dict(zip(names, columns, strict=True)),
        has_batch_norm=has_batch_norm,
        classes=classes,
        normalization=normalization,
        loss=loss_name(loss),
        provenance=run.measured(
            images=len(samples),
            batch_size=samples.batch_size,
            image_shape=samples.image_shape,
        ),
    )
    return result, _per_image(result, means, samples)


def _measure(
    evaluation: Evaluation,
    planes: Sequence[Plane],
    points: Sequence[Point],
    keys: Sequence[tuple[int, float, float]],
) -> tuple[list[tuple], dict[float, Float[np.ndarray, " n"]], int]:
    """A row for each point, the mean increase of each image by radius, and the classes."""
    run, images = evaluation.run, len(evaluation.samples)
    numbers = list(share(range(len(points))))
    label = f"circles, {BATCH_NORM_LABELS[evaluation.batch_norm]}"
    radii = list(dict.fromkeys(radius for _, radius, _ in keys))
    sums = {radius: np.zeros(images) for radius in radii}
    measured: dict[int, tuple] = {}
    with (
        evaluation.prepared() as ready,
        run.ticks(range((len(numbers) + 1) * ready.ticks_per_point), 1, label) as tick,
    ):
        origin = ready.origin(tick)
        numbered = ((number, points[number]) for number in numbers)
        with closing(ready.points(planes, numbered, tick)) as evaluated:
            for number, losses in evaluated:
                nll, _, rise, rise_error, accuracy, _ = losses.summary(origin)
                measured[number] = (nll, rise, rise_error, accuracy)
                sums[keys[number][1]] += losses.rises(origin)
    rows: dict[int, tuple] = {}
    for part in gather(measured):
        rows |= part
    count = len(points) / len(radii)
    means = {r: add_up(torch.from_numpy(s)).numpy() / count for r, s in sums.items()}
    return [rows[number] for number in range(len(points))], means, origin.classes


def _per_image(
    result: Rings, means: dict[str, dict[float, np.ndarray]], samples: CachedBatches
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
