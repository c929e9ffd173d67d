"""Counter-based random numbers: each depends on a key and a position alone."""

import numpy as np
from jaxtyping import Float, Integer, UInt64

_GAMMA = np.uint64(0x9E3779B97F4A7C15)


def _mixed(x: UInt64[np.ndarray, "..."]) -> UInt64[np.ndarray, "..."]:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def uniform_numbers(
    key: int, positions: Integer[np.ndarray, " b"], count: int
) -> Float[np.ndarray, "{count} b"]:
    """`count` uniform numbers in [0, 1) for each position.

    Source: Steele, Lea & Flood (2014), Fast splittable pseudorandom number generators, fig. 16.
    """
    of_position = _mixed(np.array([key], np.uint64) + positions.astype(np.uint64) * _GAMMA)
    turns = np.arange(1, count + 1, dtype=np.uint64) * _GAMMA
    return (_mixed(of_position + turns[:, None]) >> np.uint64(11)) / float(1 << 53)
