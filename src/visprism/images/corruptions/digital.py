"""Digital: contrast, elastic transform, pixelation, JPEG, and brightness and saturation.

The paper counts brightness as weather and saturation as an extra; they are here because both
use HSV.
"""

from collections.abc import Callable, Sequence
from io import BytesIO

import numpy as np
import torch
from jaxtyping import Float, UInt8
from PIL import Image
from torch import Tensor
from torch.nn.functional import grid_sample

from visprism.images.corruptions.corrupt import CORRUPTIONS, Images, Randomness, corruption
from visprism.images.corruptions.filters import gaussian
from visprism.images.corruptions.severities import severity_parameters

Pixels = UInt8[Tensor, "b 3 h w"]


@corruption
def contrast(images: Images, factor: float | int, randomness: Randomness) -> Images:
    """Each channel is blended with its mean over the image."""
    mean = images.mean((2, 3), keepdim=True)
    return mean + factor * (images - mean)


@corruption
def brightness(images: Images, added: float | int, randomness: Randomness) -> Images:
    """The value in HSV is raised; hue and saturation stay."""
    return brightened(images, added)


def brightened(images: Images, added: float | int) -> Images:
    """Images whose value in HSV is `added` larger, within 0 ... 1.

    With hue and saturation kept, the colors are in proportion to the value; black, which has
    neither, becomes gray.
    """
    value = images.amax(1, keepdim=True)
    raised = (value + added).clamp_(0, 1)
    return torch.where(value > 0, images * (raised / value), raised)


@corruption
def saturate(images: Images, parameters: Sequence, randomness: Randomness) -> Images:
    """The saturation in HSV is changed; hue and value stay. Gray has the hue of red."""
    factor, added = parameters
    value = images.amax(1, keepdim=True)
    span = value - images.amin(1, keepdim=True)
    # Where the value is 0 the saturation is 0, and so is every color.
    before = torch.where(span > 0, span / value, 0.0)
    after = (before * factor + added).clamp_(0, 1)
    colored = value - (value - images) * (after / before)
    gray = torch.cat([value, (value * (1 - after)).expand(-1, 2, -1, -1)], dim=1)
    return torch.where(span > 0, colored, gray)


@CORRUPTIONS.register
def jpeg_compression(images: Pixels, severity: int, randomness: Randomness) -> Pixels:
    """Saved as a JPEG of low quality, and read."""
    quality = severity_parameters("jpeg_compression", severity, images)
    decoded = Image.new("RGB", (images.shape[3], images.shape[2]))

    def compressed(image: Image.Image, planes: np.ndarray) -> None:
        file = BytesIO()
        image.save(file, "JPEG", quality=quality)
        # The mode and the size are known: Pillow's decoder needs no Python that reads headers.
        decoded.frombytes(file.getvalue(), "jpeg", ("RGB", ""))
        for plane, channel in zip(planes, _channels(decoded), strict=True):
            plane[:] = channel

    return _by_pillow(images, compressed)


@CORRUPTIONS.register
def pixelate(images: Pixels, severity: int, randomness: Randomness) -> Pixels:
    """Made smaller by Pillow's box filter, and enlarged again."""
    side = severity_parameters("pixelate", severity, images)
    height, width = images.shape[2:]
    small = int(width * side), int(height * side)
    rows = _row_indices(small[1], height)

    def coarse(image: Image.Image, planes: np.ndarray) -> None:
        box = image.resize(small, Image.Resampling.BOX)
        # At the published sizes, enlarging by a box is taking the nearest pixel. Columns are
        # enlarged by Pillow, and rows copied, which is faster.
        wide = box.resize((width, small[1]), Image.Resampling.NEAREST)
        for plane, channel in zip(planes, _channels(wide), strict=True):
            np.take(channel, rows, axis=0, out=plane, mode="clip")  # no buffer as for "raise"

    return _by_pillow(images, coarse)


def _row_indices(small: int, large: int) -> np.ndarray:
    """Row of a small image for each row of its enlargement, as Pillow rounds to the nearest."""
    rows = Image.fromarray(np.arange(small, dtype=np.int32)[:, None])
    return np.asarray(rows.resize((1, large), Image.Resampling.NEAREST))[:, 0]


def _channels(image: Image.Image) -> list[np.ndarray]:
    """Red, green and blue, without an image of each in between."""
    shape = image.height, image.width
    return [np.frombuffer(image.tobytes("raw", c), np.uint8).reshape(shape) for c in "RGB"]


def _by_pillow(images: Pixels, change: Callable[[Image.Image, np.ndarray], None]) -> Pixels:
    """Images changed one by one by a function that reads an image and writes its channels."""
    changed = torch.empty(images.shape, dtype=torch.uint8)
    size = images.shape[3], images.shape[2]
    for planes, pixels in zip(changed.numpy(), images.cpu().contiguous().numpy(), strict=True):
        channels = [Image.frombuffer("L", size, plane, "raw", "L", 0, 1) for plane in pixels]
        change(Image.merge("RGB", channels), planes)
    return changed.to(images.device)


@corruption
def elastic_transform(images: Images, parameters: Sequence, randomness: Randomness) -> Images:
    """An affine map that moves three points, then a smooth random displacement.

    Source: the published code; Simard et al. (2003), Best practices for convolutional neural
    networks applied to visual document analysis, sec. 2.
    """
    strength, sigma, shift = parameters
    height, width = images.shape[2:]
    displacements = (2 * randomness.uniform(3, 2) - 1) * shift
    places = affine_places(height, width, displacements)
    stretched = sampled(images, places[..., 0], places[..., 1], corners=True)
    fields = 2 * randomness.uniform(2, height, width) - 1
    smooth = strength * gaussian(fields, sigma, mode="reflect", truncate=3)
    across, down = smooth.unbind(1)
    row = torch.arange(height, device=images.device)[:, None] + down
    column = torch.arange(width, device=images.device) + across
    return sampled(stretched, column, row, corners=False)


def affine_places(
    height: int, width: int, displacements: Float[Tensor, "b 3 2"]
) -> Float[Tensor, "b h w 2"]:
    """Source coordinates (column, row) of each pixel, given displacements of three points."""
    middle = torch.tensor([float(height // 2), float(width // 2)])
    third = min(height, width) // 3
    points = middle + third * torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]])
    ends = (points.to(displacements) + displacements).double().cpu()
    solved = torch.linalg.solve(
        torch.cat([ends, torch.ones(len(ends), 3, 1, dtype=torch.float64)], dim=2),
        points.double().expand(len(ends), -1, -1),
    ).to(displacements)
    grid = torch.ones(height, width, 3, device=displacements.device)
    grid[..., 0] = torch.arange(width, device=displacements.device)
    grid[..., 1] = torch.arange(height, device=displacements.device)[:, None]
    return grid @ solved[:, None]


def sampled(
    images: Images,
    column: Float[Tensor, "b h w"],
    row: Float[Tensor, "b h w"],
    *,
    corners: bool,
) -> Images:
    """The images between pixels, bilinear; beyond the border they are mirrored."""
    height, width = images.shape[2:]
    if corners:
        places = [2 * column / (width - 1) - 1, 2 * row / (height - 1) - 1]
    else:
        places = [(2 * column + 1) / width - 1, (2 * row + 1) / height - 1]
    return grid_sample(
        images,
        torch.stack(places, dim=-1),
        mode="bilinear",
        padding_mode="reflection",
        align_corners=corners,
    )
