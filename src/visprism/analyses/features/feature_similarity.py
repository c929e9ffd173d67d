"""Similarity of blocks beyond CKA: mutual k-NN, Procrustes and RSA, each with its null.

Every measure compares the pooled features of the same images in two blocks, and again with the
images of the second block shuffled: a high value means little where the null is high too.

- mutual k-NN: mean over images of the share of their k nearest images (by cosine) that are the
  same in both blocks; k / (n - 1) for unrelated features. Equal cosines are put in a random
  order, independent between blocks and models, so that images that a block does not tell apart
  share neighbors by chance only;
- Procrustes: |X' Y|_* of centered features scaled to |X| = |Y| = 1: 1 less half of the squared
  distance after the best rotation;
- RSA: Spearman correlation of the dissimilarities 1 - Pearson correlation of all pairs of
  images.

Sources: Huh et al. (2024), The platonic representation hypothesis, app. A (mutual k-NN);
Williams et al. (2021), Generalized shape metrics on neural representations, eq. 4 (Procrustes);
Kriegeskorte et al. (2008), Representational similarity analysis.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int

from visprism import kit
from visprism.estimates.estimated import no_interval, student
from visprism.passes.pooled import PooledFeatures, pooled_features, unit

MEASURES = ("mutual_knn", "procrustes", "rsa")
_FEWEST_OF_RSA = 100  # images; with 50 an interval of RSA contains its mean in 0.89 only
_SECONDS = 1e-4  # for each image, pair of blocks and permutation: singular values


@kit.result(
    "feature-similarity",
    "Similarity of features",
    figures={"": {}} | {q: {"quantity": q} for q in MEASURES[1:]},
)
class BlockSimilarities(kit.BlockMatrix):
    """Similarities of pooled features of pairs of blocks; one row for each ordered pair.

    Each cell is a pair of blocks. Mutual k-NN: the fraction of an image's nearest neighbors
    that both blocks share. Procrustes and RSA: similarity of the shapes and of all
    distances. Compare with the null of shuffled images in the table.
    """

    value_name = "mutual_knn"

    mutual_knn: np.ndarray = kit.column(
        "Mutual k-NN", "", "share of the nearest images that are the same in both blocks"
    )
    mutual_knn_null: np.ndarray = kit.column(
        "Mutual k-NN of shuffled images", "", "mean over permutations of the second block"
    )
    procrustes: np.ndarray = kit.column(
        "Procrustes similarity", "", "nuclear norm of X' Y, centered and scaled to norm 1"
    )
    procrustes_null: np.ndarray = kit.column(
        "Procrustes similarity of shuffled images", "", "mean over permutations"
    )
    rsa: kit.Estimated = kit.estimate(
        "RSA",
        "",
        "Spearman correlation of the dissimilarities of all pairs of images; the interval "
        "needs 100 images",
    )
    rsa_null: np.ndarray = kit.column("RSA of shuffled images", "", "mean over permutations")
    neighbors: int = kit.scalar("Neighbors", "", "k of mutual k-NN")
    permutations: int = kit.scalar("Permutations", "", "of the images, for the null")
    pooling: str = kit.scalar("Pooling", "", "'mean' over the grid, 'class' tokens, or 'both'")
    other_model: str = kit.scalar(
        "Other model", "", "whose block the other is; empty if it is the same model", default=""
    )


@kit.analysis
class FeatureSimilarity(kit.Analysis):
    """Mutual k-NN, Procrustes and RSA similarity of blocks, with permutation nulls."""

    name = "feature-similarity"
    needs = kit.Needs.FEATURES
    images = kit.Sizes(fewest=32, standard=512, full=2048, work=0.5)  # memory is quadratic
    default = False  # `cka` is the similarity of a study; this one is quadratic in blocks
    source = "Huh et al. (2024); Williams et al. (2021); Kriegeskorte et al. (2008)"
    gives = BlockSimilarities

    pooling: Literal["mean", "class", "both"] = kit.option(
        "mean", "features of an image: mean over the grid, class tokens, or both"
    )
    neighbors: int = kit.option(10, "number of neighbors of mutual k-NN", minimum=1)
    permutations: int = kit.option(5, "number of permutations of the null", minimum=1)

    def measure(self, subject: kit.Subject, run: kit.Run) -> Sequence[kit.Result]:
        """Pool the features once and compare all pairs of blocks."""
        pooled = self._pooled(subject, run)
        return (self._compared(pooled, pooled, "", run),)

    def compare(
        self, first: kit.Measured, second: kit.Measured, run: kit.Run
    ) -> Sequence[kit.Result]:
        """Similarity of the blocks of two models on the same images."""
        named = replace(run, provenance=first.subject.named(run).provenance)
        a, b = (self._pooled(measured.subject, named) for measured in (first, second))
        return (self._compared(a, b, second.subject.name, run),)

    def _pooled(self, subject: kit.Subject, run: kit.Run) -> PooledFeatures:
        return pooled_features(
            subject.anatomy, subject.batches(), pooling=self.pooling, run=run
        )

    def _compared(
        self, a: PooledFeatures, b: PooledFeatures, other_model: str, run: kit.Run
    ) -> BlockSimilarities:
        return BlockSimilarities(
            **similarities(a, b, self.neighbors, self.permutations, run.seed),
            neighbors=self.neighbors,
            permutations=self.permutations,
            pooling=self.pooling,
            other_model=other_model,
            provenance=a.provenance,
        )

    def cost(self, subject: kit.Subject) -> kit.Cost:
        """A pass, and singular values for each pair of blocks and permutation."""
        pairs = len(subject.anatomy) ** 2
        seconds = _SECONDS * pairs * (1 + self.permutations)
        return kit.Cost(per_image=1.2, seconds_per_image=seconds)

    def comparison_cost(self, subject: kit.Subject) -> kit.Cost:
        """The cost for one model, whose pairs are shared with the other."""
        cost = self.cost(subject)
        return replace(cost, seconds_per_image=cost.seconds_per_image / 2)


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


def similarities(
    first: PooledFeatures, second: PooledFeatures, neighbors: int, permutations: int, seed: int
) -> dict[str, Any]:
    """The columns: each block of the first features with each of the second.

    Costs n^2 numbers for each block and, for each pair and permutation, singular values of a
    matrix of min(n, d) rows and columns.
    """
    n = len(first)
    if len(second) != n:
        raise kit.InputError(f"both models must see the same images, got {n} and {len(second)}")
    if neighbors + 1 >= n:
        raise kit.InputError(
            f"neighbors must be below {n - 1} (images less one), got {neighbors}"
        )
    a = _representations(first, neighbors, seed, "first")
    b = a if second is first else _representations(second, neighbors, seed, "second")
    orders = [
        torch.randperm(n, generator=kit.stream(seed, "order of images", number)).numpy()
        for number in range(permutations)
    ]
    nulls = [_compared(a, [r.shuffled(order) for r in b], neighbors) for order in orders]
    columns = kit.pair_columns(list(first.features), list(second.features))
    columns |= dict(zip(MEASURES, _compared(a, b, neighbors), strict=True))
    means = np.mean(nulls, axis=0)
    columns |= {f"{name}_null": v for name, v in zip(MEASURES, means, strict=True)}
    by_image = [rsa_by_image(x.ranks, y.ranks) for x in a for y in b]
    interval = student if n >= _FEWEST_OF_RSA else no_interval
    return columns | {"rsa": kit.mean(np.stack(by_image, axis=1), interval)}


def _representations(
    pooled: PooledFeatures, neighbors: int, seed: int, model: str
) -> list[_Representation]:
    return [
        _representation(x, neighbors, kit.stream(seed, "equal neighbors", model, number))
        for number, x in enumerate(pooled.features.values())
    ]


def _representation(
    x: Float[np.ndarray, "n d"], neighbors: int, generator: torch.Generator
) -> _Representation:
    x = x.astype(np.float64)
    cosine = unit(x) @ unit(x).T
    np.fill_diagonal(cosine, -np.inf)
    keys = torch.rand(cosine.shape, generator=generator, dtype=torch.float64).numpy()
    order = np.lexsort((keys, -cosine.round(12)), axis=1)  # equal but for rounding: ties
    nearest = order[:, :neighbors]
    adjacency = np.zeros(cosine.shape)
    np.put_along_axis(adjacency, nearest, 1.0, axis=1)
    profile = unit(x - x.mean(1, keepdims=True))
    centered = x - x.mean(0)
    if centered.shape[0] < centered.shape[1]:  # the same inner products in fewer columns
        left, sizes, _ = np.linalg.svd(centered, full_matrices=False)
        centered = left * sizes
    return _Representation(
        adjacency,
        ranks_of_pairs(1 - profile @ profile.T),
        centered / max(np.linalg.norm(centered), np.finfo(float).tiny),
    )


def ranks_of_pairs(dissimilarity: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "n n"]:
    """Ranks of the pairs of different images, less their mean; the squares add up to 1."""
    from scipy.stats import rankdata  # SciPy takes a while to import

    rows, columns = np.triu_indices(len(dissimilarity), 1)
    ranks = rankdata(dissimilarity[rows, columns].round(12))  # equal but for rounding: ties
    ranks -= ranks.mean()
    norm = np.sqrt(2) * np.linalg.norm(ranks)
    matrix = np.zeros_like(dissimilarity)
    matrix[rows, columns] = matrix[columns, rows] = ranks / norm if norm > 0 else np.nan
    return matrix


def rsa_by_image(
    first: Float[np.ndarray, "n n"], second: Float[np.ndarray, "n n"]
) -> Float[np.ndarray, " n"]:
    """RSA plus the influence of each image, of centered ranks whose squares add up to 1.

    RSA r is a mean over pairs of images. With ranks a and b of mean 0 and variance 1, the
    influence of image i is 2 mean_j (a_ij b_ij - r / 2 (a_ij^2 + b_ij^2)), as of a correlation
    that is a U-statistic; ranks count as they are.

    Source: Hoeffding (1948), A class of statistics with asymptotically normal distribution.
    """
    product, squares = (first * second).sum(1), (first**2 + second**2).sum(1)
    r = product.sum()
    return r + 2 * len(first) * (product - r / 2 * squares)


def _compared(
    first: Sequence[_Representation], second: Sequence[_Representation], neighbors: int
) -> Float[np.ndarray, "3 pairs"]:
    """Mutual k-NN, Procrustes and RSA of all pairs, in the order of `MEASURES`."""
    n = len(first[0].adjacency)
    overlap = _inner([r.adjacency for r in first], [r.adjacency for r in second])
    rsa = _inner([r.ranks for r in first], [r.ranks for r in second])
    procrustes = [
        [np.linalg.norm(a.features.T @ b.features, "nuc") for b in second] for a in first
    ]
    measures = overlap / (n * neighbors), np.array(procrustes), rsa
    return np.stack([values.ravel() for values in measures])


def _inner(
    first: Sequence[Float[np.ndarray, "n n"]], second: Sequence[Float[np.ndarray, "n n"]]
) -> Float[np.ndarray, "a b"]:
    return np.stack([x.ravel() for x in first]) @ np.stack([y.ravel() for y in second]).T
