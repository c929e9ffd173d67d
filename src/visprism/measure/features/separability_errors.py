"""Standard errors of class separability and of feature ranks, over images.

Each quantity is a smooth function of the weights of the images; U_i is n times its derivative
with respect to the weight of image i. The standard error is that of the infinitesimal
jackknife, sqrt(sum U_i^2) / n, within classes for quantities of class means. It costs one
gradient instead of one computation without each image.

Sources: Jaeckel (1972), The infinitesimal jackknife; Efron and Stein (1981), The jackknife
estimate of variance.
"""

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

Means = Float[Tensor, "k d"]

_EPSILON = 1e-7  # added to each share of the singular values, as RankMe does


def error_of_class_means(
    function: Callable[[Means], Float[Tensor, ""]],
    x: Float[np.ndarray, "n d"],
    index: Int[np.ndarray, " n"],
    *,
    direct: Float[np.ndarray, " n"] | None = None,
) -> float:
    """Standard error of a function of class means, for classes of fixed sizes.

    Args:
        function: of the means; differentiable.
        x: features.
        index: class of each image, from 0 on.
        direct: derivative with respect to the weight of an image in its class, at fixed means.

    NaN where a class has one image or the function is not finite.
    """
    counts = np.bincount(index)
    means = torch.zeros(len(counts), x.shape[1], dtype=torch.float64)
    means.index_add_(0, torch.from_numpy(index), torch.from_numpy(x))
    means /= torch.from_numpy(counts)[:, None]
    value, gradient = _value_and_gradient(function, means)
    if counts.min() < 2 or not np.isfinite(value):
        return float("nan")
    rest = x - means.numpy()[index]
    effects = (rest * gradient[index]).sum(1) + (0.0 if direct is None else direct)
    effects -= (np.bincount(index, effects) / counts)[index]
    n = counts[index]
    return float(np.sqrt((effects**2 / (n * (n - 1))).sum()))


def _value_and_gradient(
    function: Callable[[Means], Float[Tensor, ""]], means: Means
) -> tuple[float, Float[np.ndarray, "k d"]]:
    with torch.enable_grad():
        variable = means.clone().requires_grad_()
        value = function(variable)
        (gradient,) = torch.autograd.grad(value, variable)
    return float(value.detach()), gradient.numpy()


def variation_within(
    means: Means, rest: Float[Tensor, "n d"], weights: Float[Tensor, " n"]
) -> Float[Tensor, ""]:
    """NC1, tr(W B^+) / k, at these class means and deviations from them."""
    centered = (means - means.mean(0)) / len(means) ** 0.5
    along = rest @ torch.linalg.pinv(centered, rtol=1e-5)
    return (weights * along.square().sum(1)).sum() / len(means)


def equal_norms(means: Means) -> Float[Tensor, ""]:
    """NC2: coefficient of variation of the norms of the centered means."""
    norms = (means - means.mean(0)).norm(dim=1)
    return norms.std(correction=0) / norms.mean()


def equal_angles(means: Means) -> Float[Tensor, ""]:
    """NC2: standard deviation of the cosines of centered means."""
    return _cosines(means).std(correction=0)


def maximal_angles(means: Means) -> Float[Tensor, ""]:
    """NC2: mean distance of the cosines of centered means from -1 / (k - 1)."""
    return (_cosines(means) + 1 / (len(means) - 1)).abs().mean()


def _cosines(means: Means) -> Float[Tensor, " p"]:
    units = torch.nn.functional.normalize(means - means.mean(0), dim=1)
    first, second = torch.triu_indices(len(means), len(means), offset=1)
    return (units @ units.T)[first, second]


def self_duality(means: Means, weights: Float[Tensor, "k d"]) -> Float[Tensor, ""]:
    """NC3: squared distance of the weights and the centered means, each scaled to norm 1."""
    centered = means - means.mean(0)
    return (weights / weights.norm() - centered / centered.norm()).square().sum()


def effective_rank(values: Float[Tensor, " r"]) -> Float[Tensor, ""]:
    """RankMe, exp(-sum p log p), with p the root of the eigenvalues over their sum."""
    sizes = values.sqrt()
    p = sizes / sizes.sum() + _EPSILON
    return torch.exp(-(p * p.log()).sum())


def decay_exponent(values: Float[Tensor, " r"]) -> Float[Tensor, ""]:
    """alpha-ReQ: slope of log(eigenvalue) over -log(rank), by least squares."""
    rank = torch.arange(1, len(values) + 1, dtype=values.dtype).log()
    rank = rank - rank.mean()
    return -(rank * values.log()).sum() / rank.square().sum()


def error_of_spectrum(
    function: Callable[[Float[Tensor, " r"]], Float[Tensor, ""]],
    values: Float[np.ndarray, " r"],
    scores: Float[np.ndarray, "n r"],
) -> float:
    """Standard error of a function of the eigenvalues of sum_i x_i x_i^T.

    An eigenvalue is sum_i s_i^2 with the score s_i of image i, its projection on the
    eigenvector, so that s_i^2 is the derivative with respect to the weight of the image. The
    function must not change if all eigenvalues are scaled. Eigenvalues that are 0 do not count.
    """
    positive = values > 0
    if len(scores) < 2 or not positive.any():
        return float("nan")
    values, scores = values[positive], scores[:, positive]
    with torch.enable_grad():
        variable = torch.from_numpy(np.ascontiguousarray(values)).requires_grad_()
        (gradient,) = torch.autograd.grad(function(variable), variable)
    effects = scores**2 @ gradient.numpy()
    n = len(scores)
    effects -= effects.mean()
    return float(np.sqrt((effects**2).sum() * n / (n - 1)))
