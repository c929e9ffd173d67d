"""HSIC, the dependence of two kernels over the images of a batch, and CKA, which scales it.

The Hilbert-Schmidt independence criterion is the sum of the products of two centered kernel
matrices. With U-centered ones it is unbiased: 0 on average for features that are independent,
however few images and however many features there are.

Source: Song et al. (2012), Feature selection via dependence maximization, eq. 5; U-centering:
Szekely and Rizzo (2014), Partial distance correlation with methods for dissimilarities, def. 2.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

FEWEST = 4  # images; the unbiased estimate divides by n (n - 3)

# Features that differ by no more than this many units of rounding are the same.
_ROUNDING = 8


def gram(x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b b"]:
    """Inner products of the images' features minus the first image's features.

    What is taken away from all images does not count in HSIC; without it the products keep
    their digits where features have a large mean, and features that are the same for all images
    give exactly 0. Costs one copy of `x` and b² multiplications for each feature.
    """
    deviation = (x - x[:1]).flatten(1)
    products = deviation @ deviation.T
    least = (_ROUNDING * torch.finfo(x.dtype).eps) ** 2 * x[0].square().sum()
    return products * (products.diagonal().max() > least)


def rbf(grams: Float[Tensor, "m n n"], bandwidth: float) -> Float[Tensor, "m n n"]:
    """exp(-d^2 / 2 s^2) of the distance d of two images, from inner products of features.

    Where most images coincide the median distance is 0; the kernel then is its limit, 1 for
    images that coincide and 0 for others.

    Source: Kornblith et al. (2019), Similarity of neural network representations revisited.
    """
    squared_norms = grams.diagonal(dim1=1, dim2=2)
    squares = (squared_norms[:, :, None] + squared_norms[:, None] - 2 * grams).clamp_(min=0)
    squares.diagonal(dim1=1, dim2=2).zero_()
    pairs = torch.triu_indices(*squares.shape[1:], offset=1)
    median = squares[:, pairs[0], pairs[1]].quantile(0.5, dim=1)[:, None, None]
    scale = 2 * bandwidth**2 * median
    return squares.div_(-scale.clamp(min=torch.finfo(scale.dtype).tiny)).exp_()


def hsic(kernels: Float[Tensor, "m n n"]) -> tuple[Float[Tensor, "m m"], Float[Tensor, "m m"]]:
    """HSIC of all pairs of m kernels over n images: unbiased, and biased.

    The first is the sum of the products of U-centered kernels over n (n - 3), the second is
    the same sum for centered kernels over (n - 1)². Costs 2 m² n² multiplications.
    """
    n = kernels.shape[1]
    same = torch.eye(n, dtype=torch.bool)
    rows = kernels.mean(2, keepdim=True)
    centered = kernels - rows - rows.mT + rows.mean(1, keepdim=True)
    others = kernels.masked_fill(same, 0)
    rows = others.sum(2, keepdim=True) / (n - 2)
    u_centered = others - rows - rows.mT + rows.sum(1, keepdim=True) / (n - 1)
    unbiased, biased = (k.flatten(1) for k in (u_centered.masked_fill(same, 0), centered))
    return unbiased @ unbiased.T / (n * (n - 3)), biased @ biased.T / (n - 1) ** 2


# From HSIC by batch to CKA.


def by_batch(
    sums: Mapping[Any, np.ndarray],
) -> tuple[Float[np.ndarray, "n 2 m m"], Float[np.ndarray, " n"]]:
    """HSIC of each batch, unbiased and biased, and its number of images, by which it counts."""
    numbers = sorted(number for name, number in sums if name == "hsic")
    images = [sums["images", number] for number in numbers]
    return np.stack([sums["hsic", n] for n in numbers]), np.array(images, dtype=float)


def scaled(hsic: Float[np.ndarray, "m m"]) -> Float[np.ndarray, "m m"]:
    """HSIC of all pairs over the root of both blocks' HSIC."""
    root = _root(hsic)
    # Never beyond 1, as Cauchy and Schwarz say, but for rounding.
    return np.clip(hsic / np.outer(root, root), -1, 1)


def _root(hsic: Float[np.ndarray, "m m"]) -> Float[np.ndarray, " m"]:
    """Root of the HSIC of blocks with themselves."""
    return np.sqrt(np.maximum(hsic.diagonal(), np.finfo(float).tiny))


def linearized(
    hsics: Float[np.ndarray, "n m m"], images: Float[np.ndarray, " n"]
) -> Float[np.ndarray, "n m m"]:
    """CKA by batch, linearized, so that its mean over batches is CKA.

    To first order CKA changes by the change of h_xy - CKA/2 (h_xx r + h_yy / r), over the root
    of h_xx h_yy, with r the root of h_yy / h_xx. In the mean over batches that is 0.

    Source: Cochran (1977), Sampling techniques, sec. 2.11.
    """
    weighted = images[:, None, None] * hsics
    total = weighted.sum(0)
    root, cka = _root(total), scaled(total)
    parts = weighted / np.outer(root, root)
    diagonal = parts.diagonal(axis1=1, axis2=2)
    return cka + len(images) * (parts - cka / 2 * (diagonal[:, :, None] + diagonal[:, None]))
