"""Perspective: a surface over a square, seen from a corner and above, without perspective.

Parallel lines stay parallel, so that heights at any two places can be compared.
"""

import numpy as np
from jaxtyping import Float

TURN, RISE = np.radians(-58.0), np.radians(38.0)  # where the eye stands: about, and above
HEIGHT = 0.75  # of the scale's end, in sides of the square


def seen(
    x: Float[np.ndarray, "*s"], y: Float[np.ndarray, "*s"], z: Float[np.ndarray, "*s"]
) -> Float[np.ndarray, "*s 3"]:
    """To the right, up and towards the eye: where points of [-1, 1] x [-1, 1] x [0, 1] stand.

    The first two count in half sides of the square, z from the floor to the scale's end.
    """
    right = np.cos(TURN) * x - np.sin(TURN) * y
    back = np.sin(TURN) * x + np.cos(TURN) * y
    height = 2 * HEIGHT * (z - 0.5)
    up = np.cos(RISE) * height + np.sin(RISE) * back
    return np.stack([right, up, np.sin(RISE) * height - np.cos(RISE) * back], axis=-1)


def level(z: float) -> Float[np.ndarray, "5 2"]:
    """The outline of the square at the height `z`; at 0 it is the floor."""
    corners = np.array([(-1, -1), (1, -1), (1, 1), (-1, 1), (-1, -1)], dtype=float)
    return seen(corners[:, 0], corners[:, 1], np.full(5, z))[:, :2]
