"""Loss by distance: the NLL on circles around the weights, in planes of random directions.

The points of a circle are w + r (cos φ d1 + sin φ d2) for equidistant angles φ, so that the
distance is exact, whatever the grid of a surface is. Over φ and φ + π all odd orders of the
loss cancel; on a quadratic with Hessian H the mean over angles is r²/4 (d1ᵀHd1 + d2ᵀHd2),
exactly, for at least 3 angles.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import nn

from visprism.core.errors import InputError
from visprism.core.run import DEFAULT_RUN, Run
from visprism.estimates.answers import DIRECTION_PAIRS, FEWEST
from visprism.estimates.estimated import Number, stacked
from visprism.estimates.findings import Finding
from visprism.estimates.text import missing_text, number_of, text_of
from visprism.loss.double_backward import BatchNorm, check_batch_norm
from visprism.loss.eigenvalues import objective_label
from visprism.loss.landscape import BATCH_NORM_LABELS, measure_points
from visprism.loss.objective import Loss, cross_entropy
from visprism.loss.planes import random_planes
from visprism.loss.points import TREATMENTS, Evaluation, batch_norms, loss_name, read_samples
from visprism.passes.batches import check_evaluation_mode
from visprism.table.result import Result, Texts, column, estimate, result_type, scalar

RADII = (0.1, 0.5, 1.0)  # of circles, in norms of the directions

_DISTANCES = {
    "filter": "filter-normalized",
    "layer": "layer-normalized",
    "paper": "paper-normalized",
    "none": "Gaussian",
}
_DISAGREEMENT = 1.5  # ratio of the two increases of the NLL above which VP105 is reported
_SMALLEST_INCREASE = 0.01  # nats; where both increases are smaller, they are not compared


@result_type("loss_by_distance", "Increase of the loss with distance")
class LossByDistance(Result):
    """The NLL on circles around the weights; one row for each BatchNorm treatment and distance.

    Mean increase of the NLL on circles around the weights, in several random planes (thin)
    and on average (bold). Intervals are over planes and images. For a model with BatchNorm
    both frozen and re-estimated statistics are shown. This figure orders two models only
    where both treatments give the same order.

    Values are means over direction pairs and angles; values of single pairs are in
    ``rise.by_unit``. Random directions of two models are not pairs: the interval of their
    difference follows from both intervals. A model without BatchNorm has the same rows for both
    treatments, so that it can be compared with one that has it.
    """

    row_names = ("places",)

    batch_norm: Texts = column("BatchNorm", "", "frozen or reestimated statistics")
    radius: np.ndarray = column(
        "Distance r",
        "norms of the directions",
        "filter-normalized unless `normalization` differs",
    )
    rise: np.ndarray = estimate(
        "NLL increase",
        "nats",
        "NLL minus the NLL of the model's weights",
        asks="How flat is the loss?",
        better="lower",
        over="direction pairs and images",
        comparison="independent",
    )
    pairs: int = scalar("Direction pairs", "", "number of planes")
    has_batch_norm: bool = scalar(
        "Has BatchNorm", "", "whether the model has running statistics"
    )
    classes: int = scalar(
        "Classes", "", "of the model; chance level is log(classes)", default=0
    )
    normalization: str = scalar("Normalization", "", "of the directions", default="filter")
    loss: str = scalar("Loss", "", "name of the loss function", default="cross_entropy")

    @property
    def places(self) -> list[str]:
        """Distance, with its norm, and treatment of each row."""
        words = {"frozen": "frozen", "reestimated": "re-estimated"}
        return [
            f"at {_DISTANCES[self.normalization]} distance {radius:g} (BatchNorm {words[name]})"
            for name, radius in zip(self.batch_norm.tolist(), self.radius.tolist(), strict=True)
        ]

    def answered(self, name: str) -> np.ndarray:
        """The rows of the middle distance, re-estimated statistics first."""
        radii = np.unique(self.radius)
        return np.flatnonzero(self.radius == radii[len(radii) // 2])[::-1]

    def reading(self, name: str, row: int) -> dict[str, Any]:
        """Each distance is a measure."""
        return {"measure": ""}

    def treatments(self) -> dict[str, np.ndarray]:
        """Rows of each treatment that differs: one for a model without BatchNorm."""
        names = list(dict.fromkeys(self.batch_norm.tolist()))
        names = names if self.has_batch_norm else names[:1]
        return {name: np.flatnonzero(self.batch_norm == name) for name in names}

    def sentences(self) -> Iterator[str | Finding]:
        """The increase at each distance, for each treatment of BatchNorm."""
        data, norm = objective_label(self.provenance.split), self.normalization
        for name, rows in self.treatments().items():
            treatment = f", {BATCH_NORM_LABELS[name]}" * self.has_batch_norm
            for row in rows:
                rise = self.rise[row]
                yield (
                    f"{data} rises by {text_of(rise)} nats at {_DISTANCES[norm]} distance "
                    f"{self.radius[row]:g}{treatment}; "
                    f"{number_of(self.pairs, 'direction pair')}, "
                    f"{self.images_text}{missing_text(rise)}"
                )
        yield from self._disagreement()

    def _disagreement(self) -> list[Finding]:
        """VP105 at the distance where the two treatments of BatchNorm differ most."""
        by_name = self.treatments()
        if len(by_name) < 2:
            return []
        pairs = list(zip(by_name["frozen"], by_name["reestimated"], strict=True))
        ratios = [_ratio(float(self.rise[i]), float(self.rise[j])) for i, j in pairs]
        beyond = sum(ratio > _DISAGREEMENT for ratio in ratios)
        if not beyond:
            return []
        i, j = pairs[int(np.argmax(ratios))]
        text = (
            f"the NLL increase depends on BatchNorm at {beyond} of {len(ratios)} distances, "
            f"most at {self.radius[i]:g} by ratio: {text_of(self.rise[i])} with frozen, "
            f"{text_of(self.rise[j])} with re-estimated statistics, over "
            f"{number_of(self.pairs, 'direction pair')} and {self.images_text}; a model is "
            "flatter than another only if it is under both treatments"
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


def crossed_mean(values: Float[np.ndarray, "pairs images"]) -> Number:
    """Mean over direction pairs and images, both random, with its interval.

    With a and b the variances of the means of pairs and of images, over their numbers, and e
    the variance of the residuals over all values, the variance of the mean is a + b - e, at
    least a and b. The quantile of the interval is Cochran's: Student's of pairs and of images,
    weighted by a and b. Satterthwaite's would be too small with 3 pairs and 512 images. None
    for fewer than 3 pairs or 2 images. By unit it has the means of pairs.

    Source: Cornfield and Tukey (1956), Average values of mean squares in factorials; Cochran
    (1964), Approximate significance levels of the Behrens-Fisher test.
    """
    from scipy.special import stdtrit  # SciPy takes a while to import

    pairs, images = values.shape
    with np.errstate(invalid="ignore", over="ignore"):
        by_pair, by_image, average = values.mean(1), values.mean(0), float(values.mean())
    if pairs < FEWEST[DIRECTION_PAIRS] or images < 2 or not np.isfinite(values).all():
        few = f"fewer than {FEWEST[DIRECTION_PAIRS]} {DIRECTION_PAIRS}"
        reason = few if pairs < FEWEST[DIRECTION_PAIRS] else "a single image"
        reason = reason if np.isfinite(values).all() else "the loss is not finite everywhere"
        return Number(average, by_unit=by_pair, missing=reason)
    a, b = by_pair.var(ddof=1) / pairs, by_image.var(ddof=1) / images
    residuals = values - by_pair[:, None] - by_image + average
    e = (residuals**2).sum() / ((pairs - 1) * (images - 1) * pairs * images)
    variance = max(a + b - e, a, b)
    if not variance:
        return Number(average, average, average, by_pair)
    of_pairs, of_images = stdtrit([pairs - 1, images - 1], 0.975).tolist()
    half = (of_pairs * a + of_images * b) / (a + b) * variance**0.5
    return Number(average, average - half, average + half, by_pair)


def loss_by_distance(
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
) -> LossByDistance:
    """The loss on circles around the model's weights, in planes of random directions.

    Where the model has BatchNorm, its running statistics do not fit weights elsewhere, which a
    model with LayerNorm does not suffer from: both treatments are measured by default.

    Cost: pairs x radii x angles forward passes of all images, and up to twice as many again
    with re-estimated statistics.

    Args:
        model: any classifier, in evaluation mode.
        batches: of (images, targets), as in `landscape`.
        radii: distances, in norms of the directions.
        angles: number of points on each circle, even and at least 4.
        pairs: number of planes, each with two directions; at least 3 for an interval.
        loss: of logits and targets, one value for each image.
        treatments: of BatchNorm; None: "frozen", and "reestimated" where the model has any.
        normalization: of the directions; see `gaussian`.
        perturb_positions: whether random directions also change position embeddings.
        run: device and precision, seed of the directions, progress, provenance, deadline.
    """
    check_evaluation_mode(model)
    if not len(radii) or min(radii) <= 0:
        raise InputError(f"radii must be positive, got {tuple(radii)}")
    if angles < 4 or angles % 2:
        raise InputError(f"angles must be even and at least 4, got {angles}")
    has_batch_norm = bool(batch_norms(model))
    if treatments is None:
        treatments = TREATMENTS if has_batch_norm else ("frozen",)
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
    points = [
        (pair, r * float(np.cos(phi)), r * float(np.sin(phi)))
        for pair, r, phi in product(range(pairs), radii, circle)
    ]
    rows: list[tuple] = []
    classes = 0
    for treatment in treatments:
        evaluation = Evaluation(model, samples, loss, treatment, run)
        label = f"circles, {BATCH_NORM_LABELS[treatment]}"
        losses = measure_points(evaluation, planes, points, label)
        classes = losses.origin.classes
        with np.errstate(invalid="ignore", over="ignore"):
            rises = losses.rises.reshape(pairs, len(radii), angles, -1).mean(2)
        names = [treatment] if has_batch_norm else list(TREATMENTS)
        for name, (i, radius) in product(names, enumerate(radii)):
            rows.append((name, radius, crossed_mean(rises[:, i])))
    batch_norm, radius, rise = zip(*rows, strict=True)
    return LossByDistance(
        batch_norm=np.array(batch_norm),
        radius=np.array(radius),
        rise=stacked(rise),
        pairs=pairs,
        has_batch_norm=has_batch_norm,
        classes=classes,
        normalization=normalization,
        loss=loss_name(loss),
        provenance=samples.provenance(run),
    )
