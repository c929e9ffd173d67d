"""Sums: what probes gather, added up over images, and what follows from them at the end."""

from typing import Any

import numpy as np
from jaxtyping import Float

Sums = dict[Any, np.ndarray]  # by block, or by attention


def standard_error(
    total: Float[np.ndarray, "*shape"],
    squares: Float[np.ndarray, "*shape"],
    count: Float[np.ndarray, "*shape"],
) -> Float[np.ndarray, "*shape"]:
    """Standard error of a mean, from the sum, the sum of squares and the number of images.

    NaN for one image, which tells nothing of the spread.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = (squares - total**2 / count) / (count - 1)
        error = np.sqrt(np.maximum(variance, 0) / count)  # rounding may go below 0
    return np.where(count > 1, error, np.nan)
