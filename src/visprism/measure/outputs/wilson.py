"""Wilson's interval of a share."""

import numpy as np
from jaxtyping import Int64

_95 = 1.959963984540054  # of the normal distribution


def wilson(
    successes: Int64[np.ndarray, " k"], trials: Int64[np.ndarray, " k"]
) -> tuple[np.ndarray, np.ndarray]:
    """The 95 % interval of shares; 0 to 1 where nothing was tried.

    Source: Wilson (1927), Probable inference, the law of succession, and statistical inference.
    """
    n = np.maximum(trials, 1)
    share, z2 = successes / n, _95**2
    middle = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = _95 / (1 + z2 / n) * np.sqrt(share * (1 - share) / n + z2 / (4 * n**2))
    empty = trials == 0
    low = np.where(empty, 0.0, (middle - half).clip(0, share))
    high = np.where(empty, 1.0, (middle + half).clip(share, 1))
    return low, high
