"""Intrinsic dimension of features by the distances to the two nearest neighbors (TwoNN).

Source: Facco et al. (2017), Estimating the intrinsic dimension of datasets by a minimal
neighborhood information; Ansuini et al. (2019), Intrinsic dimension of data representations in
deep neural networks.
"""

import numpy as np
from jaxtyping import Float
from scipy.sparse import coo_array
from scipy.spatial.distance import cdist

from visprism.anatomy import Anatomy
from visprism.core.run import Run
from visprism.core.statistics import t_quantile
from visprism.passes.batches import image_shape
from visprism.passes.blocks import block_columns
from visprism.passes.pooled import PooledFeatures, Pooling
from visprism.results.intrinsic_dimension import IntrinsicDimensions

FEWEST = 20  # images; fewer give no useful estimate
_FEWEST_FOR_INTERVAL = 200  # 95% intervals cover 90% for 100 points, 93 to 95% from here on
_ROWS = 512  # of the matrix of distances that are in memory


def intrinsic_dimension(
    anatomy: Anatomy, pooled: PooledFeatures, *, pooling: Pooling, run: Run
) -> IntrinsicDimensions:
    """The TwoNN estimate of each block.

    Costs n^2 distances for n images.

    Args:
        anatomy: of the model.
        pooled: features of all images.
        pooling: of the features.
        run: provenance.
    """
    rows = []
    for features in pooled.features.values():
        points = np.unique(features, axis=0).astype(np.float64)
        rows.append((*twonn_dimension(points), features.shape[1], len(points)))
    dimension, low, high, width, distinct = (np.array(c) for c in zip(*rows, strict=True))
    return IntrinsicDimensions(
        **block_columns(list(pooled.features)),
        dimension=dimension,
        low=low,
        high=high,
        width=width,
        distinct=distinct,
        pooling=pooling,
        provenance=run.measured(
            images=len(pooled), batch_size=pooled.batch_size, image_shape=image_shape(anatomy)
        ),
    )


def twonn_dimension(points: Float[np.ndarray, "n d"]) -> tuple[float, float, float]:
    """The intrinsic dimension of distinct points, with its 95% interval.

    With r_1 and r_2 the distances of a point to its two nearest neighbors, log(r_2 / r_1) is
    exponential with the rate d where the density of points is constant up to r_2. With S the
    sum over n points the estimate is (n - 1) / S, which is unbiased for independent ratios.

    Ratios of points that share a neighbor are dependent, so that the variance of S is the sum
    of u_i u_j over all pairs of points that are the same, neighbors, or share one, with u the
    deviation from the mean. The interval is estimate x exp(± t error / S). It does not include
    the bias of a density that varies up to r_2, which grows with d and falls with n.

    NaN for fewer than 20 points; no interval for fewer than 200, where it covers too little.
    """
    n = len(points)
    if n < FEWEST:
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
