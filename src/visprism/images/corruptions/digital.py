"""Digital: contrast, elastic transform, pixelation, JPEG, and brightness and saturation.

The paper counts brightness as weather and saturation as an extra; they are here because both
use HSV.
"""

from collections.abc import Callable, Sequence
from io import BytesIO

import torch
from jaxtyping import Float
from PIL import Image
from torch import Tensor
from torch.nn.functional import grid_sample

from visprism.images.corruptions.corrupt import (
    CORRUPTIONS,
    Images,
    Pixels,
    Randomness,
    corruption,
)
from visprism.images.corruptions.filters import gaussian
from visprism.images.corruptions.severities import severity_parameters
from visprism.images.pixels import pictures, stacked


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

    def compressed(image: Image.Image) -> Image.Image:
        file = BytesIO()
        image.save(file, "JPEG", quality=quality)
        return Image.open(file)

    return _by_pillow(images, compressed)


@CORRUPTIONS.register
def pixelate(images: Pixels, severity: int, randomness: Randomness) -> Pixels:
    """Made smaller by Pillow's box filter, and enlarged again."""
    side = severity_parameters("pixelate", severity, images)
    height, width = images.shape[2:]
    small = int(width * side), int(height * side)

    def coarse(image: Image.Image) -> Image.Image:
        box = image.resize(small, Image.Resampling.BOX)
        # At the published sizes, enlarging by a box is taking the nearest pixel.
        return box.resize((width, height), Image.Resampling.NEAREST)

    return _by_pillow(images, coarse)


def _by_pillow(images: Pixels, change: Callable[[Image.Image], Image.Image]) -> Pixels:
    """Images changed one by one."""
    return stacked([change(image) for image in pictures(images)]).to(images.device)


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
