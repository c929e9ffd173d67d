"""Pictures of images that only one of two models classifies correctly."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Int, UInt8
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from visprism.results.differing_pictures import DifferingPictures
from visprism.results.predictions import ErrorConsistency

MOST_PICTURES = 24
_LONGEST = 48  # pixels of a side


def differing_pictures(
    differing: ErrorConsistency, pixels: Callable[[int], UInt8[Tensor, "c h w"]]
) -> DifferingPictures:
    """The first images that only one model classifies correctly, at most 24.

    Both models have as many of them as the other, as far as there are as many.

    Args:
        differing: the images, with their classes.
        pixels: (index of an image) -> its pixels in eight bits, in color or gray. Sides of more
            than 48 pixels are reduced to the means of areas.
    """
    rows = _chosen(differing.only_first.astype(bool))
    pictures = [_reduced(pixels(int(index))) for index in differing.image[rows]]
    return DifferingPictures(
        image=differing.image[rows],
        target=differing.target[rows],
        first=differing.first[rows],
        second=differing.second[rows],
        height=np.array([len(picture) for picture in pictures], dtype=int),
        width=np.array([picture.shape[1] for picture in pictures], dtype=int),
        pixels=np.array([picture.tobytes().hex() for picture in pictures], dtype=str),
        images=len(differing),
        first_model=differing.first_model,
        second_model=differing.second_model,
        provenance=differing.provenance,
    )


def _chosen(only_first: np.ndarray) -> Int[np.ndarray, " n"]:
    """Rows of both kinds in turn until one kind has no more, at most 24, in order."""
    kinds = [np.flatnonzero(only_first), np.flatnonzero(~only_first)]
    ranks = [np.arange(len(kind)) for kind in kinds]
    in_turn = np.argsort(np.concatenate(ranks), kind="stable")
    return np.sort(np.concatenate(kinds)[in_turn[:MOST_PICTURES]])


def _reduced(pixels: UInt8[Tensor, "c h w"]) -> UInt8[np.ndarray, "rows columns 3"]:
    """The picture with sides of at most 48 pixels; gray in color."""
    height, width = pixels.shape[-2:]
    shrink = min(1.0, _LONGEST / max(height, width))
    size = max(1, round(height * shrink)), max(1, round(width * shrink))
    picture = adaptive_avg_pool2d(pixels.float(), size).round().byte()
    colors = picture if len(picture) == 3 else picture[:1].expand(3, -1, -1)
    return colors.permute(1, 2, 0).contiguous().numpy()
