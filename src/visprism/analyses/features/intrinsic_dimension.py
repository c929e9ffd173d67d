"""Intrinsic dimension of features by the distances to the two nearest neighbors (TwoNN).

With r_1 and r_2 the distances of a point to its two nearest neighbors, log(r_2 / r_1) is
exponential with the rate d where the density of points is constant up to r_2. With S the sum
over n points the estimate of d is (n - 1) / S.

Source: Facco et al. (2017), Estimating the intrinsic dimension of datasets by a minimal
neighborhood information; Ansuini et al. (2019), Intrinsic dimension of data representations in
deep neural networks.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Float, Int64

from visprism import kit
from visprism.core.files import atomic_write
from visprism.core.statistics import t_quantile
from visprism.passes.pooled import PooledFeatures, pooled_features
from visprism.table.result import estimate


def save_features(
    pooled: PooledFeatures, positions: Int64[np.ndarray, " n"], path: Path
) -> None:
    """Write pooled features as safetensors, whole or not at all.

    The file holds one float32 array (images, channels) for each block by its name, the index of
    each image in the data as ``positions`` and its class as ``targets``; the provenance is JSON
    in its metadata.
    """
    from safetensors.numpy import save_file

    arrays = {block.name: values for block, values in pooled.features.items()}
    arrays["positions"] = positions
    if pooled.targets is not None:
        arrays["targets"] = pooled.targets
    contiguous = {n: np.ascontiguousarray(a) for n, a in arrays.items()}
    with atomic_write(path) as scratch:
        save_file(contiguous, scratch, {"provenance": json.dumps(asdict(pooled.provenance))})


_FEWEST = 20  # images; fewer give no useful estimate
_FEWEST_FOR_INTERVAL = 200  # 95% intervals cover 90% for 100 points, 93 to 95% from here on
_ROWS = 512  # of the matrix of distances that are in memory


@kit.result("intrinsic-dimension", "Intrinsic dimension")
class IntrinsicDimensions(kit.ScalarPerBlock):
    """TwoNN estimate of the intrinsic dimension of pooled features; a row for each block.

    Each point is a block: the number of dimensions that the distances to the two nearest
    images suggest, with its 95% interval. It rises in early and falls in late blocks of
    many trained networks.

    The interval is over images, for 200 or more; it does not include the bias of the estimate.
    """

    value_name = "dimension"

    dimension: kit.Estimated = estimate(
        "Intrinsic dimension", "", "TwoNN estimate from distances to the two nearest neighbors"
    )
    width: np.ndarray = kit.column("Width", "", "number of channels of the pooled features")
    distinct: np.ndarray = kit.column(
        "Distinct images", "", "images without an exact copy, which the estimate uses"
    )
    pooling: str = kit.scalar("Pooling", "", "of the features: 'mean', 'class' or 'both'")


@kit.analysis
class IntrinsicDimension(kit.Analysis):
    """Intrinsic dimension of the features of each block (TwoNN), and export of the features."""

    name = "intrinsic-dimension"
    images = kit.Sizes(fewest=_FEWEST, full=5000, work=0.5)
    needs = kit.Needs.FEATURES
    default = False
    passes = 1.3
    source = "Facco et al. (2017); Ansuini et al. (2019)"
    gives = IntrinsicDimensions

    pooling: Literal["mean", "class", "both"] = kit.option(
        "mean", "features of an image: mean over the grid, class tokens, or both"
    )
    features: Path | None = kit.option(
        None, "file to write the pooled features to, as safetensors"
    )

    def measure(self, subject: kit.Subject, run: kit.Run) -> Sequence[kit.Result]:
        """Pool the features, estimate the dimension, and write the file.

        Costs n^2 distances for n images and each block.
        """
        pooled = pooled_features(
            subject.anatomy, subject.batches(), pooling=self.pooling, run=run
        )
        points = [np.unique(x, axis=0).astype(np.float64) for x in pooled.features.values()]
        value, low, high = np.array([twonn_dimension(p) for p in points]).T
        result = IntrinsicDimensions(
            **kit.block_columns(list(pooled.features)),
            dimension=kit.Estimated(
                value, low, high, missing=f"fewer than {_FEWEST_FOR_INTERVAL} images"
            ),
            width=np.array([p.shape[1] for p in points]),
            distinct=np.array([len(p) for p in points]),
            pooling=self.pooling,
            provenance=pooled.provenance,
        )
        if self.features is not None:
            positions = subject.images.positions[: len(pooled)]
            name = "".join(c if c.isalnum() or c in "._-" else "_" for c in subject.name)
            stem = str(self.features).removesuffix(".safetensors")
            save_features(pooled, positions, Path(f"{stem}.{name}.safetensors"))
        return (result,)

    def inapplicable(self, subject: kit.Subject) -> str | None:
        """With few images."""
        return super().inapplicable(subject) or subject.too_few_images(_FEWEST)


def twonn_dimension(points: Float[np.ndarray, "n d"]) -> tuple[float, float, float]:
    """The intrinsic dimension of distinct points, with its 95% interval.

    (n - 1) / S is unbiased for independent ratios of distances.

    Ratios of points that share a neighbor are dependent, so that the variance of S is the sum
    of u_i u_j over all pairs of points that are the same, neighbors, or share one, with u the
    deviation from the mean. The interval is estimate x exp(± t error / S). It does not include
    the bias of a density that varies up to r_2, which grows with d and falls with n.

    NaN for fewer than 20 points and where all ratios are 1; no interval for fewer than 200,
    where it covers too little.
    """
    from scipy.sparse import coo_array  # SciPy takes a while to import
    from scipy.spatial.distance import cdist

    n = len(points)
    if n < _FEWEST:
        return float("nan"), float("nan"), float("nan")
    logs, neighbors = np.zeros(n), np.zeros((n, 2), dtype=np.int64)
    for start in range(0, n, _ROWS):
        distances = cdist(points[start : start + _ROWS], points)
        rows = np.arange(len(distances))
        distances[rows, start + rows] = np.inf
        nearest = np.argpartition(distances, 1, axis=1)[:, :2]
        of_nearest = np.sort(np.take_along_axis(distances, nearest, axis=1), axis=1)
        neighbors[start + rows] = nearest
        logs[start + rows] = np.log(of_nearest[:, 1] / of_nearest[:, 0])
    total = float(logs.sum())
    if not total:
        return float("nan"), float("nan"), float("nan")
    estimate = (n - 1) / total
    if n < _FEWEST_FOR_INTERVAL:
        return estimate, float("nan"), float("nan")
    around = coo_array(
        (np.ones(3 * n), (np.repeat(np.arange(n), 3), np.c_[np.arange(n), neighbors].ravel())),
        shape=(n, n),
    ).tocsr()
    dependent = (around @ around.T).astype(bool).astype(float)
    deviation = logs - total / n
    variance = max(float(deviation @ (dependent @ deviation)), 0.0) * n / (n - 1)
    half = t_quantile(n) * np.sqrt(variance) / total
    return estimate, estimate * float(np.exp(-half)), estimate * float(np.exp(half))
