"""Parallel projection of a surface over a square, viewed from a corner and above.

Parallel lines stay parallel, so that heights at any two positions can be compared.
"""

import numpy as np
from jaxtyping import Float

AZIMUTH, ELEVATION = np.radians(-58.0), np.radians(38.0)  # of the viewer
HEIGHT = 0.75  # of the end of the scale, in sides of the square


def project_isometric(
    x: Float[np.ndarray, "*s"], y: Float[np.ndarray, "*s"], z: Float[np.ndarray, "*s"]
) -> Float[np.ndarray, "*s 3"]:
    """Coordinates to the right, up and toward the viewer, of [-1, 1] x [-1, 1] x [0, 1].

    The first two are in half sides of the square; z is from the floor to the end of the scale.
    """
    right = np.cos(AZIMUTH) * x - np.sin(AZIMUTH) * y
    back = np.sin(AZIMUTH) * x + np.cos(AZIMUTH) * y
    height = 2 * HEIGHT * (z - 0.5)
    up = np.cos(ELEVATION) * height + np.sin(ELEVATION) * back
    return np.stack([right, up, np.sin(ELEVATION) * height - np.cos(ELEVATION) * back], axis=-1)


def outline_at(z: float) -> Float[np.ndarray, "5 2"]:
    """The outline of the square at the height `z`; at 0 it is the floor."""
    corners = np.array([(-1, -1), (1, -1), (1, 1), (-1, 1), (-1, -1)], dtype=float)
    return project_isometric(corners[:, 0], corners[:, 1], np.full(5, z))[:, :2]
