"""Class separability: neural collapse, RankMe and alpha-ReQ of the features of each block.

Sources: Papyan, Han and Donoho (2020), Prevalence of neural collapse during the terminal phase
of deep learning training; Garrido et al. (2023), RankMe; Agrawal et al. (2022), alpha-ReQ.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import nn

from visprism.anatomy import Anatomy
from visprism.core.errors import InputError
from visprism.core.run import Run
from visprism.measure.features.separability_errors import (
    decay_exponent,
    effective_rank,
    equal_angles,
    equal_norms,
    error_of_class_means,
    error_of_spectrum,
    maximal_angles,
    self_duality,
    variation_within,
)
from visprism.passes.batches import image_shape
from visprism.passes.blocks import block_columns
from visprism.passes.pooled import PooledFeatures, Pooling
from visprism.results.class_separability import ClassSeparability, FeatureRanks

_ROUNDING = 1e-10  # eigenvalues below this part of the largest count as 0
_RANKS = (5, 50)  # fewest and most eigenvalues of the fit of alpha-ReQ
ENOUGH = 1.5  # images for each feature of an interval of RankMe; with 0.5 it contains 0.86
FEWEST = 100  # images of an interval of alpha; with 50 it contains the mean in 0.92


def classifier_of(model: nn.Module, classes: int) -> nn.Linear | None:
    """The last linear layer with as many outputs as there are classes; None without one."""
    layers = [m for m in model.modules() if isinstance(m, nn.Linear)]
    return next((m for m in reversed(layers) if m.out_features == classes), None)


def class_separability(
    anatomy: Anatomy,
    pooled: PooledFeatures,
    *,
    pooling: Pooling,
    classifier: nn.Linear | None,
    predicts_targets: bool,
    run: Run,
) -> tuple[ClassSeparability, FeatureRanks]:
    """Neural collapse and ranks of the features of every block.

    Costs one d x d eigendecomposition for each block of d features. Standard errors are over
    images; see `separability_errors`.

    Args:
        anatomy: of the model.
        pooled: features with targets; with the classifier's inputs where there is one.
        pooling: of the features.
        classifier: linear head, for NC3; None: NC3 is NaN.
        predicts_targets: whether logits are of the targets' classes; NC4 is NaN otherwise.
        run: provenance.
    """
    if pooled.targets is None:
        raise InputError("batches must be (images, targets) for class separability")
    classes, index = np.unique(pooled.targets, return_inverse=True)
    if len(classes) < 2:
        raise InputError(f"targets must be of at least 2 classes, got {len(classes)}")
    decided = None
    if predicts_targets and pooled.logits is not None:
        decided = pooled.logits.argmax(1)
    rows = [_collapse(x.astype(np.float64), index) for x in pooled.features.values()]
    nearest = [classes[row.pop("nearest")] for row in rows]
    duality, duality_error = _self_duality(pooled, index, classes, classifier)
    ranks = [_ranks(x.astype(np.float64)) for x in pooled.features.values()]
    origin = run.measured(
        images=len(pooled), batch_size=pooled.batch_size, image_shape=image_shape(anatomy)
    )
    columns = block_columns(list(pooled.features))
    return (
        ClassSeparability(
            **columns,
            **_stacked(rows),
            accuracy=np.array([(n == pooled.targets).mean() for n in nearest]),
            disagreement=np.array(
                [np.nan if decided is None else (n != decided).mean() for n in nearest]
            ),
            self_duality=duality,
            self_duality_error=duality_error,
            pooling=pooling,
            classes=len(classes),
            provenance=origin,
        ),
        FeatureRanks(**columns, **_stacked(ranks), pooling=pooling, provenance=origin),
    )


def _stacked(rows: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def _class_means(
    x: Float[np.ndarray, "n d"], index: Int[np.ndarray, " n"]
) -> Float[np.ndarray, "k d"]:
    totals = np.zeros((index.max() + 1, x.shape[1]))
    np.add.at(totals, index, x)
    return totals / np.bincount(index)[:, None]


def _collapse(x: Float[np.ndarray, "n d"], index: Int[np.ndarray, " n"]) -> dict[str, Any]:
    """NC1 and NC2, and the nearest class mean of each image.

    NC1 is tr(W B^+) / k, with W the covariance within classes and B that of the class means,
    each class weighing the same. NC2: with class means less their mean, the coefficient of
    variation of their norms, the standard deviation of the cosines of pairs, and the mean of
    |cosine + 1 / (k - 1)|.

    NC1 is NaN where a class has one image, which does not vary. NC2 is NaN for two classes,
    whose centered means are opposite in any network.
    """
    means = _class_means(x, index)
    k = len(means)
    rest = x - means[index]
    centered = means - means.mean(0)
    weights = 1 / (k * np.bincount(index)[index])
    _, values, directions = np.linalg.svd(centered / np.sqrt(k), full_matrices=False)
    spanned = values**2 > _ROUNDING * max(values[0] ** 2, np.finfo(float).tiny)
    along = rest @ directions[spanned].T / values[spanned]
    norms = np.linalg.norm(centered, axis=1)
    several = bool(norms.any()) and k > 2
    varies = bool(spanned.any()) and np.bincount(index).min() > 1
    units = centered / np.maximum(norms, np.finfo(float).tiny)[:, None]
    cosines = (units @ units.T)[np.triu_indices(k, 1)]
    distance = (means**2).sum(1) - 2 * x @ means.T
    return {
        "nc1": float((weights[:, None] * along**2).sum() / k) if varies else np.nan,
        "nc1_error": _error_of_nc1(x, index, rest, weights, along) if varies else np.nan,
        **{
            f"{name}_error": error_of_class_means(function, x, index) if several else np.nan
            for name, function in _NC2.items()
        },
        "equinorm": float(norms.std() / norms.mean()) if several else np.nan,
        "equiangularity": float(cosines.std()) if several else np.nan,
        "maximal_angle": float(abs(cosines + 1 / (k - 1)).mean()) if several else np.nan,
        "nearest": distance.argmin(1),
    }


_NC2: dict[str, Callable] = {
    "equinorm": equal_norms,
    "equiangularity": equal_angles,
    "maximal_angle": maximal_angles,
}


def _error_of_nc1(
    x: Float[np.ndarray, "n d"],
    index: Int[np.ndarray, " n"],
    rest: Float[np.ndarray, "n d"],
    weights: Float[np.ndarray, " n"],
    along: Float[np.ndarray, "n r"],
) -> float:
    """Standard error: an image moves its class mean, and counts in the variation itself."""
    function = partial(
        variation_within, rest=torch.from_numpy(rest), weights=torch.from_numpy(weights)
    )
    direct = (along**2).sum(1) / (index.max() + 1) ** 2
    return error_of_class_means(function, x, index, direct=direct)


def _self_duality(
    pooled: PooledFeatures,
    index: Int[np.ndarray, " n"],
    classes: Int[np.ndarray, " k"],
    classifier: nn.Linear | None,
) -> tuple[float, float]:
    """NC3 and its error, with the centered class means of the classifier's input."""
    if classifier is None or pooled.inputs is None or classes.max() >= classifier.out_features:
        return float("nan"), float("nan")
    x = pooled.inputs.astype(np.float64)
    weights = classifier.weight.detach().double().cpu()[torch.from_numpy(classes)]
    function = partial(self_duality, weights=weights)
    value = float(function(torch.from_numpy(_class_means(x, index))))
    return value, error_of_class_means(function, x, index)


def _ranks(x: Float[np.ndarray, "n d"]) -> dict[str, Any]:
    """RankMe of the features as they are and of centered ones, and alpha of the latter."""
    values, scores = _spectrum(x)
    centered_values, centered_scores = _spectrum(x - x.mean(0))
    alpha, alpha_error = _decay(centered_values, centered_scores)
    enough = len(x) >= ENOUGH * x.shape[1]
    errors = [
        error_of_spectrum(effective_rank, *spectrum) if enough else float("nan")
        for spectrum in ((values, scores), (centered_values, centered_scores))
    ]
    return {
        "rankme": _rankme(values),
        "rankme_error": errors[0],
        "rankme_centered": _rankme(centered_values),
        "rankme_centered_error": errors[1],
        "alpha": alpha,
        "alpha_error": alpha_error,
        "dimension": x.shape[1],
    }


def _spectrum(
    x: Float[np.ndarray, "n d"],
) -> tuple[Float[np.ndarray, " r"], Float[np.ndarray, "n r"]]:
    """Squared singular values, largest first, and each image's part of them, squared scores.

    Those that may be rounding are 0.
    """
    wide = x.shape[0] < x.shape[1]
    values, vectors = np.linalg.eigh(x @ x.T if wide else x.T @ x)
    values, vectors = values[::-1], vectors[:, ::-1]
    values = np.where(values > 1e-14 * max(values[0], 0.0), values, 0.0)
    return values, vectors * np.sqrt(values) if wide else x @ vectors


def _rankme(values: Float[np.ndarray, " r"]) -> float:
    """exp(-sum p log p) with p the singular values over their sum, plus 1e-7."""
    return float(effective_rank(torch.from_numpy(values))) if values.any() else float("nan")


def _decay(
    values: Float[np.ndarray, " r"], scores: Float[np.ndarray, "n r"]
) -> tuple[float, float]:
    """Slope of the least-squares line log(eigenvalue) = c - alpha log(rank), and its error."""
    number = min(int((values > _ROUNDING * values[0]).sum()), _RANKS[1])
    if number < _RANKS[0]:
        return float("nan"), float("nan")
    leading = values[:number]
    error = error_of_spectrum(decay_exponent, leading, scores[:, :number])
    value = float(decay_exponent(torch.from_numpy(leading)))
    return value, error if len(scores) >= FEWEST else float("nan")
