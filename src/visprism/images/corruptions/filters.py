"""Linear filters with the borders of the originals, and projections of the plane."""

from functools import lru_cache
from math import ceil, cos, hypot, radians, sin

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import grid_sample, interpolate, pad

Images = Float[Tensor, "b 3 h w"]


@lru_cache(maxsize=64)
def _gaussian_matrix(side: int, sigma: float | int, mode: str, truncate: float | int) -> Tensor:
    """The blur of a line of `side` pixels as a matrix, its border included."""
    from scipy.ndimage import gaussian_filter1d  # SciPy takes a while to import

    if sigma < 1e-15:
        return torch.eye(side)
    rows = gaussian_filter1d(np.eye(side), sigma, axis=0, mode=mode, truncate=truncate)
    return torch.from_numpy(rows).float()


def gaussian(
    images: Float[Tensor, "*b h w"],
    sigma: float | int,
    *,
    mode: str = "nearest",
    truncate: float | int = 4,
) -> Float[Tensor, "*b h w"]:
    """Gaussian blur, as SciPy's and scikit-image's: two products with banded matrices."""
    height, width = images.shape[-2:]
    down = _gaussian_matrix(height, float(sigma), mode, truncate).to(images.device)
    across = _gaussian_matrix(width, float(sigma), mode, truncate).to(images.device)
    return down @ (images @ across.T)


def convolved(
    images: Float[Tensor, "b c h w"], kernel: Float[Tensor, "k k"]
) -> Float[Tensor, "b c h w"]:
    """Correlation with a symmetric kernel by FFT; the border is mirrored about its pixels."""
    side, (height, width) = len(kernel), images.shape[2:]
    reach = side // 2
    wide = pad(images, (reach, reach, reach, reach), mode="reflect")
    shape = wide.shape[2:]
    spectrum = torch.fft.rfft2(kernel.to(images), s=shape)
    convolution = torch.fft.irfft2(torch.fft.rfft2(wide) * spectrum, s=shape)
    return convolution[..., side - 1 : side - 1 + height, side - 1 : side - 1 + width]


def motion_taps(
    radius: int, sigma: float | int, angle: float | int
) -> list[tuple[int, int, float]]:
    """Offsets (rows, columns) along a line, and the weight of each shifted copy.

    Source: ImageMagick's MotionBlurImage, which made the published images: half a Gaussian.
    """
    width = 2 * radius + 1
    weight = np.exp(-(np.arange(width) ** 2) / (2 * sigma**2))
    weight /= weight.sum()
    down, across = np.sin(np.deg2rad(angle)), np.cos(np.deg2rad(angle))
    return [
        (-ceil(i * down - 0.5), -ceil(i * across - 0.5), float(w)) for i, w in enumerate(weight)
    ]


def motion_blurred(
    image: Float[Tensor, "*c h w"], radius: int, sigma: float | int, angle: float | int
) -> Float[Tensor, "*c h w"]:
    """Motion blur of one image along a line; border pixels are repeated."""
    height, width = image.shape[-2:]
    reach = 2 * radius + 1
    flat = image.reshape(1, -1, height, width)
    wide = pad(flat, (reach, reach, reach, reach), mode="replicate")[0]
    total: dict[tuple[int, int], float] = {}
    for dy, dx, weight in motion_taps(radius, sigma, angle):
        if abs(dy) >= height or abs(dx) >= width:
            break
        total[dy, dx] = total.get((dy, dx), 0.0) + weight
    blurred = torch.zeros_like(flat[0])
    for (dy, dx), weight in total.items():
        rows, columns = reach - dy, reach - dx
        blurred.add_(wide[:, rows : rows + height, columns : columns + width], alpha=weight)
    return blurred.reshape(image.shape)


def zoomed(images: Float[Tensor, "b c h w"], factor: float | int) -> Float[Tensor, "b c h w"]:
    """The center of the images, enlarged to their size.

    Corner pixels stay corner pixels, as in SciPy's zoom of order 1.
    """
    height, width = images.shape[2:]
    inside = [ceil(side / factor) for side in (height, width)]
    top, left = ((side - part) // 2 for side, part in zip((height, width), inside, strict=True))
    middle = images[..., top : top + inside[0], left : left + inside[1]]
    size = [round(part * factor) for part in inside]
    if size != inside:
        middle = interpolate(middle, size=size, mode="bilinear", align_corners=True)
    top, left = (size[0] - height) // 2, (size[1] - width) // 2
    return middle[..., top : top + height, left : left + width]


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

    The center is the published code's: height / 2 and width / 2 in pixel centers.
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
    """Images under a projective map of the plane, bilinear."""
    height, width = images.shape[2:]
    column, row = np.meshgrid(np.arange(width), np.arange(height))
    places = np.stack([column + edge - width / 2, row + edge - height / 2, np.ones(row.shape)])
    x, y, z = np.tensordot(np.linalg.inv(matrix), places, axes=1)
    column, row = x / z + width / 2 - edge, y / z + height / 2 - edge
    grid = np.stack([(2 * column + 1) / width - 1, (2 * row + 1) / height - 1], axis=-1)
    on_device = torch.from_numpy(grid).to(images).expand(len(images), -1, -1, -1)
    return grid_sample(images, on_device, padding_mode="zeros", align_corners=False)
