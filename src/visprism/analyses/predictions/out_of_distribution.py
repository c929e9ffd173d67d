"""Out-of-distribution scores of logits and of the features of each block.

Every score is higher for images that look like the distribution's images; its AUROC is the
probability that such an image scores above one of other data, ties counting half. The interval
is Newcombe's with DeLong's error where that is larger.

Sources: Hendrycks and Gimpel (2017), A baseline for detecting misclassified and
out-of-distribution examples; Liu et al. (2020), Energy-based out-of-distribution detection;
Hendrycks et al. (2022), Scaling out-of-distribution detection (max-logit); Sun et al. (2022),
Out-of-distribution detection with deep nearest neighbors; Lee et al. (2018), A simple unified
framework for detecting out-of-distribution samples; DeLong et al. (1988), Comparing the areas
under two or more correlated receiver operating characteristic curves.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Any, ClassVar, Literal

import numpy as np
from jaxtyping import Float, Int

from visprism import kit
from visprism.core.statistics import auroc_interval
from visprism.images.images import ordered
from visprism.images.open_data import content_of, load_data
from visprism.passes.pooled import PooledFeatures, halves, pooled_features, unit

MSP, ENERGY, MAX_LOGIT = "maximum softmax", "energy", "max-logit"
NEIGHBOR, MAHALANOBIS = "k-NN distance", "Mahalanobis distance"
_RIDGE = 1e-3  # added to the covariance, in mean variances of a feature
_TRUE_POSITIVES = 0.95

Scores = tuple[Float[np.ndarray, " m"], Float[np.ndarray, " n"]]  # of both data sets


@kit.result("out-of-distribution", "Out-of-distribution scores")
class Detection(kit.SeriesPerBlock):
    """AUROC of scores against images of other data; a row for each score and block.

    Each line is a score: the probability that an image of the data scores above one of the
    other data, with its 95% interval. 0.5 is chance level; below it, images of the other
    data score higher. Scores of logits are drawn at the depth of the head.

    Scores of logits stand at the head.
    """

    series_name: ClassVar[str] = "score"
    value_name: ClassVar[str] = "auroc"
    row_names: ClassVar[tuple[str, ...]] = ("score",)

    score: kit.Texts = kit.column(
        "Score",
        "",
        "of logits: 'maximum softmax', 'energy', 'max-logit'; of features: 'k-NN distance', "
        "'Mahalanobis distance'",
    )
    auroc: kit.Estimated = kit.estimate(
        "AUROC",
        "",
        "probability that an image of the data scores above another one; 0.5 is chance",
        asks="Does the confidence detect images of other data?",
    )
    fpr95: np.ndarray = kit.column(
        "FPR at 95% TPR", "", "fraction of the other images accepted where 95% of the data are"
    )
    other_data: str = kit.scalar("Other data", "", "of another distribution")
    other_images: int = kit.scalar("Other images", "", "number of images of the other data")
    fitted_on: str = kit.scalar("Fitted on", "", "images of k-NN and Mahalanobis distance")
    pooling: str = kit.scalar("Pooling", "", "'mean' over the grid, 'class' tokens, or 'both'")

    @property
    def units_text(self) -> str:
        """The images of both data sets."""
        fewest = min(self.provenance.images, self.other_images)
        return f"images of both data sets (at least {fewest:,} of each)"

    def answered(self, name: str) -> np.ndarray:
        """The maximum softmax probability, the baseline of the field."""
        return np.flatnonzero(self.score == MSP)

    def reading(self, name: str, row: int) -> dict[str, Any]:
        """Which data it was compared with."""
        return {"subject": self.other_data}

    def sentences(self) -> Iterator[str | kit.Finding]:
        """Each score, and what was compared."""
        yield from super().sentences()
        if np.isfinite(self.auroc).any():
            best = int(np.nanargmax(self.auroc))
            yield (
                f"{self.images_text} against {self.other_images:,} of {self.other_data}; "
                f"highest AUROC of {np.isfinite(self.auroc).sum()}: {self._interval(best)} by "
                f"{self.score[best]} at {self.block[best]} (selected), FPR at 95% TPR "
                f"{self.fpr95[best]:.1%}; fitted on {self.fitted_on}"
            )


@kit.analysis
class OutOfDistribution(kit.Analysis):
    """AUROC of out-of-distribution scores of logits and of each block against other data."""

    name = "out-of-distribution"
    group = "robustness"
    needs = kit.Needs.FEATURES | kit.Needs.PIXELS
    images = kit.Sizes(fewest=100, full=5000)
    default = False  # which data is of another distribution, only the user can say
    required = "ood_data"
    source = (
        "Hendrycks & Gimpel (2017); Liu et al. (2020); Hendrycks et al. (2022); Sun et al. "
        "(2022); Lee et al. (2018)"
    )
    gives = Detection

    ood_data: str | None = kit.option(
        None, "out-of-distribution images, in the form of DATA", names_data=True
    )
    ood_split: str | None = kit.option(
        None, "split of ood_data; none: test if it has one, else all images", names_data=True
    )
    pooling: Literal["mean", "class", "both"] = kit.option(
        "mean", "features of an image: mean over the grid, class tokens, or both"
    )
    neighbors: int = kit.option(
        50, "number k of neighbors: the score is the distance to the k-th nearest", minimum=1
    )

    def measure(self, subject: kit.Subject, run: kit.Run) -> Sequence[kit.Result]:
        """Pool the features of training images, test images and the other images."""
        assert self.ood_data is not None  # see `required`
        read = load_data(
            self.ood_data, split=self.ood_split, limit=subject.num_images, seed=run.seed
        )
        other = ordered(read, seed=run.seed).batches(
            subject.known_preprocessing, batch_size=subject.batch_size
        )
        anatomy, pooling = subject.anatomy, self.pooling
        test = pooled_features(anatomy, subject.batches(), pooling=pooling, run=run)
        if subject.training_images is subject.images:
            fitted, test = halves(test)
            fitted_on = "images of the data, the other half of which is tested"
        else:
            training = subject.training_batches()
            fitted = pooled_features(anatomy, training, pooling=pooling, run=run)
            fitted_on = "training images"
        others = pooled_features(anatomy, other, pooling=pooling, run=run)
        labeled = subject.missing(kit.Needs.TARGETS) is None
        rows = list(scores(fitted, test, others, self.neighbors, with_logits=labeled))
        areas, errors = np.array([auroc(*values) for _, _, values in rows]).T
        ends = auroc_interval(areas, errors, len(test), len(others))
        detection = Detection(
            **kit.block_columns([block or anatomy[-1] for _, block, _ in rows]),
            score=np.array([name for name, _, _ in rows]),
            auroc=kit.Estimated(areas, *ends),
            fpr95=np.array([false_positives(*values) for _, _, values in rows]),
            other_data=self.ood_data,
            other_images=len(others),
            fitted_on=f"{len(fitted)} {fitted_on}",
            pooling=pooling,
            provenance=test.provenance,
        )
        return (detection,)

    def inapplicable(self, subject: kit.Subject) -> str | None:
        """With fewer images to fit than neighbors."""
        fitted = min(len(subject.training_images), subject.limit or inf)
        if subject.training_images is subject.images:
            fitted //= 2
        few = f"{self.neighbors} neighbors need as many images to fit, got {fitted}"
        return super().inapplicable(subject) or (few if fitted < self.neighbors else None)

    @classmethod
    def content(cls, options: Mapping[str, Any]) -> list[str]:
        """A digest of the other images."""
        data = options["ood_data"]
        return [] if data is None else [content_of(data, options["ood_split"])]

    def cost(self, subject: kit.Subject) -> kit.Cost:
        """A pass over test images, training images and the other images."""
        return kit.Cost(per_image=3.3)


def scores(
    fitted: PooledFeatures,
    test: PooledFeatures,
    other: PooledFeatures,
    neighbors: int,
    *,
    with_logits: bool,
) -> Iterator[tuple[str, kit.Block | None, Scores]]:
    """Name, block (None: the head) and values of each score, of both data sets."""
    if with_logits and test.logits is not None and other.logits is not None:
        pairs = zip(_of_logits(test.logits), _of_logits(other.logits), strict=True)
        for name, values in zip((MSP, ENERGY, MAX_LOGIT), pairs, strict=True):
            yield name, None, values
    blocks = [(b, x, (test.features[b], other.features[b])) for b, x in fitted.features.items()]
    for block, x, parts in blocks:
        yield NEIGHBOR, block, _distances(x, parts, neighbors)
    if fitted.targets is not None:
        for block, x, parts in blocks:
            yield MAHALANOBIS, block, _mahalanobis(x, fitted.targets, parts)


def auroc(
    inside: Float[np.ndarray, " m"], outside: Float[np.ndarray, " n"]
) -> tuple[float, float]:
    """Probability that a score of the first is above one of the second, and its standard error.

    Ties count half. The error is DeLong's: with the mean of each image over all images of the
    other kind, the variance of these means over their number, added for both kinds.
    """
    from scipy.stats import rankdata  # SciPy takes a while to import

    m, n = len(inside), len(outside)
    ranks = rankdata(np.concatenate([inside, outside]))
    of_inside = (ranks[:m] - rankdata(inside)) / n
    of_outside = 1 - (ranks[m:] - rankdata(outside)) / m
    if m < 2 or n < 2:
        return float(of_inside.mean()), float("nan")
    variance = of_inside.var(ddof=1) / m + of_outside.var(ddof=1) / n
    return float(of_inside.mean()), float(np.sqrt(variance))


def false_positives(inside: Float[np.ndarray, " m"], outside: Float[np.ndarray, " n"]) -> float:
    """Fraction of the second kind above the threshold that 95% of the first kind reach."""
    place = int(np.floor((1 - _TRUE_POSITIVES) * len(inside)))
    return float((outside >= np.sort(inside)[place]).mean())


def _of_logits(logits: Float[np.ndarray, "n k"]) -> tuple[Float[np.ndarray, " n"], ...]:
    """Maximum softmax probability, negative energy at temperature 1, and largest logit.

    The first is its logarithm, which has the same order and does not round to 1.
    """
    values = logits.astype(np.float64)
    largest, energy = values.max(1), np.logaddexp.reduce(values, axis=1)
    return -_log_of_others(values), energy, largest


def _log_of_others(values: Float[np.ndarray, "n k"]) -> Float[np.ndarray, " n"]:
    """log((1 - p) / p) of the largest probability p, without rounding of p to 1."""
    ordered = np.sort(values, axis=1)
    if ordered.shape[1] == 1:
        return np.full(len(ordered), -np.inf)
    return np.logaddexp.reduce(ordered[:, :-1], axis=1) - ordered[:, -1]


def _distances(
    fitted: Float[np.ndarray, "m d"],
    parts: tuple[Float[np.ndarray, "_ d"], ...],
    neighbors: int,
) -> Scores:
    """Minus the distance to the k-th nearest fitted image, of features of norm 1."""
    directions = unit(fitted.astype(np.float64))
    cosines = [unit(part.astype(np.float64)) @ directions.T for part in parts]
    first, second = (np.partition(c, -neighbors, axis=1)[:, -neighbors] for c in cosines)
    return -np.sqrt(np.maximum(2 - 2 * first, 0)), -np.sqrt(np.maximum(2 - 2 * second, 0))


def _mahalanobis(
    fitted: Float[np.ndarray, "m d"],
    targets: Int[np.ndarray, " m"],
    parts: tuple[Float[np.ndarray, "_ d"], ...],
) -> Scores:
    """Minus the smallest squared Mahalanobis distance to a class mean.

    The covariance covers all classes about their means, plus 1e-3 of the mean variance.
    """
    x = fitted.astype(np.float64)
    classes, index = np.unique(targets, return_inverse=True)
    means = np.stack([x[index == c].mean(0) for c in range(len(classes))])
    rest = x - means[index]
    covariance = rest.T @ rest / len(x)
    scale = max(np.trace(covariance) / len(covariance), np.finfo(float).tiny)
    root = np.linalg.cholesky(covariance + _RIDGE * scale * np.eye(len(covariance)))
    centers = np.linalg.solve(root, means.T).T
    scores = []
    for part in parts:
        white = np.linalg.solve(root, part.astype(np.float64).T).T
        distance = (white**2).sum(1)[:, None] - 2 * white @ centers.T + (centers**2).sum(1)
        scores.append(-distance.min(1))
    return scores[0], scores[1]
