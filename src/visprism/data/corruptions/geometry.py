"""Geometry: images translated, rotated, tilted and scaled on a black background."""

from math import cos, hypot, radians, sin

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import grid_sample

Images = Float[Tensor, "b 3 h w"]


def translated(images: Images, pixels: int) -> Images:
    """Translation to the right by an integer number of pixels."""
    moved = torch.zeros_like(images)
    if pixels >= 0:
        moved[..., pixels:] = images[..., : images.shape[3] - pixels]
    else:
        moved[..., :pixels] = images[..., -pixels:]
    return moved


def rotated(images: Images, degrees: float | int) -> Images:
    """Turned clockwise."""
    c, s = cos(radians(degrees)), sin(radians(degrees))
    return _project(images, np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]]), 0.5)


def scaled(images: Images, factor: float | int) -> Images:
    """Enlarged, or made smaller."""
    return _project(images, np.diag([factor, factor, 1.0]), 0.5)


def tilted(images: Images, degrees: float | int) -> Images:
    """Rotation by one angle about both axes of the image, seen from a distance of its diagonal.

    The center is that of the published code: height / 2 and width / 2 in pixel centers.
    """
    c, s = cos(radians(degrees)), sin(radians(degrees))
    return _project(images, _seen_from(hypot(*images.shape[2:]), c, s), 0.0)


def _seen_from(far: float, c: float, s: float) -> np.ndarray:
    """Projection of a plane, rotated by the angle of this cosine and sine, from a distance."""
    about_row = np.array([[1, 0, 0, 0], [0, c, -s, 0], [0, s, c, 0], [0, 0, 0, 1]])
    about_column = np.array([[c, 0, -s, 0], [0, 1, 0, 0], [s, 0, c, 0], [0, 0, 0, 1]])
    away = np.eye(4)
    away[2, 3] = far
    lifted = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1]])
    seen = np.array([[far, 0, 0, 0], [0, far, 0, 0], [0, 0, 1, 0]])
    return seen @ away @ about_row @ about_column @ lifted


def _project(images: Images, matrix: np.ndarray, edge: float) -> Images:
    """Images under a projective map of the plane, bilinear.

    Args:
        images: to map.
        matrix: of the map, for columns and rows from the middle.
        edge: 0.5 where pixels are squares about that middle, 0 where they are points.
    """
    height, width = images.shape[2:]
    column, row = np.meshgrid(np.arange(width), np.arange(height))
    places = np.stack([column + edge - width / 2, row + edge - height / 2, np.ones(row.shape)])
    x, y, z = np.tensordot(np.linalg.inv(matrix), places, axes=1)
    column, row = x / z + width / 2 - edge, y / z + height / 2 - edge
    grid = np.stack([(2 * column + 1) / width - 1, (2 * row + 1) / height - 1], axis=-1)
    on_device = torch.from_numpy(grid).to(images).expand(len(images), -1, -1, -1)
    return grid_sample(images, on_device, padding_mode="zeros", align_corners=False)
