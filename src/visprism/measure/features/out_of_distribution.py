"""Out-of-distribution scores of logits and of the features of each block.

Sources: Hendrycks and Gimpel (2017), A baseline for detecting misclassified and
out-of-distribution examples; Liu et al. (2020), Energy-based out-of-distribution detection;
Hendrycks et al. (2022), Scaling out-of-distribution detection (max-logit); Sun et al. (2022),
Out-of-distribution detection with deep nearest neighbors; Lee et al. (2018), A simple unified
framework for detecting out-of-distribution samples; DeLong et al. (1988), Comparing the areas
under two or more correlated receiver operating characteristic curves.
"""

import numpy as np
from jaxtyping import Float, Int
from scipy.special import logsumexp

from visprism.anatomy import Anatomy, Block
from visprism.core.errors import InputError
from visprism.core.run import Run
from visprism.passes.batches import image_shape
from visprism.passes.blocks import block_columns
from visprism.passes.pooled import PooledFeatures, Pooling
from visprism.results.out_of_distribution import (
    ENERGY,
    MAHALANOBIS,
    MAX_LOGIT,
    MSP,
    NEIGHBOR,
    OutOfDistribution,
)

Scores = tuple[Float[np.ndarray, " m"], Float[np.ndarray, " n"]]  # of both data sets

_TEST_ROWS = 1024  # similarities to all fitted images that are in memory at once
_RIDGE = 1e-3  # added to the covariance, in mean variances of a feature
_TRUE_POSITIVES = 0.95


def out_of_distribution(
    anatomy: Anatomy,
    fitted: PooledFeatures,
    test: PooledFeatures,
    other: PooledFeatures,
    *,
    pooling: Pooling,
    neighbors: int = 50,
    with_logits: bool = True,
    fitted_on: str = "",
    other_data: str = "",
    run: Run,
) -> OutOfDistribution:
    """AUROC of each score, in-distribution images against those of other data.

    Every score is higher for images that look like those of the distribution.

    Args:
        anatomy: of the model.
        fitted: images of the distribution that k-NN and Mahalanobis are fitted on.
        test: other images of the distribution.
        other: images of another distribution.
        pooling: of the features.
        neighbors: number of the nearest neighbor whose distance counts.
        with_logits: whether the model's outputs are logits of the classes of the images.
        fitted_on: what `fitted` is, for readers.
        other_data: name of the other data.
        run: provenance.
    """
    rows: list[tuple[str, Block, Scores]] = []
    if with_logits and test.logits is not None and other.logits is not None:
        pairs = zip(_of_logits(test.logits), _of_logits(other.logits), strict=True)
        names = (MSP, ENERGY, MAX_LOGIT)
        rows += [(n, anatomy[-1], scores) for n, scores in zip(names, pairs, strict=True)]
    for block, features in fitted.features.items():
        parts = test.features[block], other.features[block]
        rows.append((NEIGHBOR, block, _distances(features, parts, neighbors)))
    if fitted.targets is not None:
        for block, features in fitted.features.items():
            parts = test.features[block], other.features[block]
            rows.append((MAHALANOBIS, block, _mahalanobis(features, fitted.targets, parts)))
    areas = [auroc(*scores) for _, _, scores in rows]
    origin = run.measured(
        images=len(test), batch_size=test.batch_size, image_shape=image_shape(anatomy)
    )
    return OutOfDistribution(
        **block_columns([block for _, block, _ in rows]),
        score=np.array([name for name, _, _ in rows]),
        auroc=np.array([area for area, _ in areas]),
        auroc_error=np.array([error for _, error in areas]),
        fpr95=np.array([_false_positives(*scores) for _, _, scores in rows]),
        other_data=other_data,
        other_images=len(other),
        fitted_on=f"{len(fitted)} {fitted_on}".strip(),
        pooling=pooling,
        provenance=origin,
    )


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


def _false_positives(
    inside: Float[np.ndarray, " m"], outside: Float[np.ndarray, " n"]
) -> float:
    """Fraction of the second kind above the threshold that 95% of the first kind reach."""
    place = int(np.floor((1 - _TRUE_POSITIVES) * len(inside)))
    return float((outside >= np.sort(inside)[place]).mean())


def _of_logits(logits: Float[np.ndarray, "n k"]) -> tuple[Float[np.ndarray, " n"], ...]:
    """Maximum softmax probability, negative energy at temperature 1, and largest logit.

    Of the first, the logarithm, which has the same order and does not round to 1.
    """
    values = logits.astype(np.float64)
    largest, energy = values.max(1), logsumexp(values, axis=1)
    return -_log_of_others(values), energy, largest


def _log_of_others(values: Float[np.ndarray, "n k"]) -> Float[np.ndarray, " n"]:
    """log((1 - p) / p) of the largest probability p, without rounding of p to 1."""
    ordered = np.sort(values, axis=1)
    if ordered.shape[1] == 1:
        return np.full(len(ordered), -np.inf)
    return logsumexp(ordered[:, :-1], axis=1) - ordered[:, -1]


def _distances(
    fitted: Float[np.ndarray, "m d"],
    parts: tuple[Float[np.ndarray, "_ d"], ...],
    neighbors: int,
) -> Scores:
    """Minus the distance to the k-th nearest fitted image, of features of norm 1."""
    if neighbors > len(fitted):
        raise InputError(
            f"neighbors must be at most {len(fitted)} (images to choose from), got {neighbors}"
        )
    directions = _unit(fitted)
    scores = []
    for part in parts:
        values = []
        for start in range(0, len(part), _TEST_ROWS):
            cosine = _unit(part[start : start + _TEST_ROWS]) @ directions.T
            nearest = np.partition(-cosine, neighbors - 1, axis=1)[:, neighbors - 1]
            values.append(-np.sqrt(np.maximum(2 + 2 * nearest, 0)))
        scores.append(np.concatenate(values))
    return scores[0], scores[1]


def _unit(x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
    x = x.astype(np.float64)
    return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), np.finfo(float).tiny)


def _mahalanobis(
    fitted: Float[np.ndarray, "m d"],
    targets: Int[np.ndarray, " m"],
    parts: tuple[Float[np.ndarray, "_ d"], ...],
) -> Scores:
    """Minus the smallest squared Mahalanobis distance to a class mean.

    The covariance is that of all classes about their means, plus 1e-3 of the mean variance.
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
