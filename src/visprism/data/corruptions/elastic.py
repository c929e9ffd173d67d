"""Elastic transform: a small affine map, then a smooth random displacement."""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import grid_sample

from visprism.data.corruptions.filters import gaussian
from visprism.data.corruptions.randomness import Randomness
from visprism.data.corruptions.registry import CORRUPTIONS, in_unit
from visprism.data.corruptions.severities import severity_parameters

Images = Float[Tensor, "b 3 h w"]


@CORRUPTIONS.register
@in_unit
def elastic_transform(images: Images, severity: int, randomness: Randomness) -> Images:
    """An affine map that moves three points, then a smooth random displacement.

    Source: the published code; Simard et al. (2003), Best practices for convolutional neural
    networks applied to visual document analysis, sec. 2.
    """
    strength, sigma, shift = severity_parameters("elastic_transform", severity, images)
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
    """The images between pixels, bilinear; beyond the border they are mirrored.

    Args:
        images: to sample.
        column: where, in pixels,
        row: the same.
        corners: mirrored about the outermost pixels' middles, and else about their outer edges.
    """
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
