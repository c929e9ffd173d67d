"""Similarity of blocks beyond CKA: mutual k-NN, Procrustes and RSA, each beside its null.

Every measure compares the pooled features of the same images in two blocks, and again with the
images of the second block shuffled: a high value means little where the null is high too.

Sources: Huh et al. (2024), The platonic representation hypothesis, app. A (mutual k-NN);
Williams et al. (2021), Generalized shape metrics on neural representations, eq. 4 (Procrustes);
Kriegeskorte et al. (2008), Representational similarity analysis.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int

from visprism.anatomy import Anatomy, Block
from visprism.core.errors import InputError
from visprism.core.run import Run, stream
from visprism.passes.batches import image_shape
from visprism.passes.blocks import block_columns
from visprism.passes.pooled import PooledFeatures, Pooling
from visprism.results.feature_similarity import MEASURES, FeatureSimilarity

FEWEST_OF_RSA = 100  # images; with 50 an interval of RSA contains its mean in 0.89 only


@dataclass(frozen=True, eq=False)
class _Representation:
    """What the measures need of the features of one block."""

    adjacency: Float[np.ndarray, "n n"]  # 1 where a column is among the neighbors of a row
    ranks: Float[np.ndarray, "n n"]  # of the dissimilarities; centered, squares add up to 1
    features: Float[np.ndarray, "n r"]  # centered; squares add up to 1

    def shuffled(self, order: Int[np.ndarray, " n"]) -> "_Representation":
        """The same with its images in another order."""
        pairs = np.ix_(order, order)
        return _Representation(self.adjacency[pairs], self.ranks[pairs], self.features[order])


def feature_similarity(
    anatomy: Anatomy,
    first: PooledFeatures,
    second: PooledFeatures,
    *,
    pooling: Pooling,
    neighbors: int = 10,
    permutations: int = 5,
    other_model: str = "",
    run: Run,
) -> FeatureSimilarity:
    """All measures for each block of the first features with each of the second.

    - mutual k-NN: mean over images of the share of their k nearest images (by cosine) that are
      the same in both blocks; k / (n - 1) for unrelated features. Equal cosines are put in a
      random order, independent between blocks and models, so that images that a block does not
      tell apart share neighbors by chance only;
    - Procrustes: |X' Y|_* of centered features scaled to |X| = |Y| = 1: 1 less half of the
      squared distance after the best rotation;
    - RSA: Spearman correlation of the dissimilarities 1 - Pearson correlation of all pairs of
      images.

    The standard error of RSA is over images; see `rsa_error`.

    Costs n^2 numbers for each block and, for each pair and permutation, singular values of a
    matrix of min(n, d) rows and columns.

    Args:
        anatomy: of the first model.
        first: its features.
        second: those of the same or of another model, of the same images.
        pooling: of the features.
        neighbors: k of mutual k-NN.
        permutations: number of orders of the second block's images for the null.
        other_model: name of the second model; "" for the same.
        run: seed and provenance.
    """
    n = len(first)
    if len(second) != n:
        raise InputError(f"both models must see the same images, got {n} and {len(second)}")
    if neighbors + 1 >= n:
        raise InputError(f"neighbors must be below {n - 1} (images less one), got {neighbors}")
    of_first = _representations(first, neighbors, run.seed, "first")
    of_second = (
        of_first if second is first else _representations(second, neighbors, run.seed, "second")
    )
    values = _compared(of_first, of_second, neighbors)
    nulls = [
        _compared(of_first, [r.shuffled(order) for r in of_second], neighbors)
        for order in _orders(n, permutations, run.seed)
    ]
    columns = {name: v.ravel() for name, v in zip(MEASURES, values, strict=True)}
    means = np.mean(nulls, axis=0)
    columns["rsa_error"] = np.array(
        [rsa_error(a.ranks, b.ranks) for a in of_first for b in of_second]
    )
    columns |= {f"{name}_null": v.ravel() for name, v in zip(MEASURES, means, strict=True)}
    return FeatureSimilarity(
        **_pairs(list(first.features), list(second.features)),
        **columns,
        neighbors=neighbors,
        permutations=permutations,
        pooling=pooling,
        other_model=other_model,
        provenance=run.measured(
            images=n, batch_size=first.batch_size, image_shape=image_shape(anatomy)
        ),
    )


def _orders(n: int, permutations: int, seed: int) -> Iterator[Int[np.ndarray, " n"]]:
    for number in range(permutations):
        generator = stream(seed, "order of images", number)
        yield torch.randperm(n, generator=generator).numpy()


def _pairs(first: Sequence[Block], other: Sequence[Block]) -> dict[str, np.ndarray]:
    """The columns of `BlockMatrix` that say which pair a row is about."""
    others = block_columns(list(other) * len(first))
    names = {"block": "other"} | {c: f"other_{c}" for c in ("kind", "stage", "depth")}
    rows = block_columns([block for block in first for _ in other])
    return rows | {new: others[name] for name, new in names.items()}


def _representations(
    pooled: PooledFeatures, neighbors: int, seed: int, model: str
) -> list[_Representation]:
    return [
        _representation(x, neighbors, stream(seed, "equal neighbors", model, number))
        for number, x in enumerate(pooled.features.values())
    ]


def _representation(
    x: Float[np.ndarray, "n d"], neighbors: int, generator: torch.Generator
) -> _Representation:
    x = x.astype(np.float64)
    cosine = _unit(x) @ _unit(x).T
    np.fill_diagonal(cosine, -np.inf)
    keys = torch.rand(cosine.shape, generator=generator, dtype=torch.float64).numpy()
    order = np.lexsort((keys, -cosine.round(12)), axis=1)  # equal but for rounding: ties
    nearest = order[:, :neighbors]
    adjacency = np.zeros(cosine.shape)
    np.put_along_axis(adjacency, nearest, 1.0, axis=1)
    profile = _unit(x - x.mean(1, keepdims=True))
    centered = x - x.mean(0)
    if centered.shape[0] < centered.shape[1]:  # the same inner products in fewer columns
        left, sizes, _ = np.linalg.svd(centered, full_matrices=False)
        centered = left * sizes
    return _Representation(
        adjacency,
        _ranks(1 - profile @ profile.T),
        centered / max(np.linalg.norm(centered), np.finfo(float).tiny),
    )


def _ranks(dissimilarity: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "n n"]:
    """Ranks of the pairs of different images, less their mean; the squares add up to 1."""
    from scipy.stats import rankdata  # SciPy takes a while to import

    rows, columns = np.triu_indices(len(dissimilarity), 1)
    ranks = rankdata(dissimilarity[rows, columns].round(12))  # equal but for rounding: ties
    ranks -= ranks.mean()
    norm = np.sqrt(2) * np.linalg.norm(ranks)
    matrix = np.zeros_like(dissimilarity)
    matrix[rows, columns] = matrix[columns, rows] = ranks / norm if norm > 0 else np.nan
    return matrix


def rsa_error(first: Float[np.ndarray, "n n"], second: Float[np.ndarray, "n n"]) -> float:
    """Standard error of RSA, over images.

    RSA r is a mean over pairs of images. With ranks a and b of mean 0 and variance 1, the
    influence of image i is 2 mean_j (a_ij b_ij - r / 2 (a_ij^2 + b_ij^2)), as of a correlation
    that is a U-statistic; ranks count as they are. NaN for fewer than 100 images.

    Args:
        first: ranks of the pairs; their mean is 0, and their squares add up to 1.
        second: of the other block.

    Source: Hoeffding (1948), A class of statistics with asymptotically normal distribution.
    """
    n = len(first)
    if n < FEWEST_OF_RSA:
        return float("nan")
    product = (first * second).sum(1)
    squares = (first**2 + second**2).sum(1)
    influence = 2 * n * (product - product.sum() / 2 * squares)
    return float(influence.std(ddof=1) / n**0.5)


def _unit(x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
    return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), np.finfo(float).tiny)


def _compared(
    first: Sequence[_Representation], second: Sequence[_Representation], neighbors: int
) -> Float[np.ndarray, "3 a b"]:
    """Mutual k-NN, Procrustes and RSA of all pairs, in the order of `MEASURES`."""
    n = len(first[0].adjacency)
    overlap = _inner([r.adjacency for r in first], [r.adjacency for r in second])
    rsa = _inner([r.ranks for r in first], [r.ranks for r in second])
    procrustes = [
        [np.linalg.norm(a.features.T @ b.features, "nuc") for b in second] for a in first
    ]
    return np.stack([overlap / (n * neighbors), np.array(procrustes), rsa])


def _inner(
    first: Sequence[Float[np.ndarray, "n n"]], second: Sequence[Float[np.ndarray, "n n"]]
) -> Float[np.ndarray, "a b"]:
    return np.stack([x.ravel() for x in first]) @ np.stack([y.ravel() for y in second]).T
