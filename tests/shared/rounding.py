"""How far numbers may differ that came by two paths: other batches, layouts or kernels.

A sum of n float32 numbers in another order differs by up to about sqrt(n) * 6e-8 of the largest
magnitude, and every CPU has its own order. Tests use equality only for the same path twice.
"""

import numpy as np
import torch

TOLERANCE = 1e-5  # relative to the largest magnitude: tens of layers, each of hundreds of sums


def assert_equal_up_to_rounding(actual, expected):
    """Both arrays agree within `TOLERANCE` of the largest magnitude of `expected`."""
    actual, expected = np.asarray(_values(actual)), np.asarray(_values(expected))
    assert actual.shape == expected.shape
    if expected.dtype.kind != "f":
        np.testing.assert_array_equal(actual, expected)
        return
    scale = np.abs(expected[np.isfinite(expected)]).max(initial=0)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=TOLERANCE * scale)


def _values(array):
    return array.detach() if isinstance(array, torch.Tensor) else array
