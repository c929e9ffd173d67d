"""Grouping: each operation runs once, on all of its images."""

from collections.abc import Sequence

import torch
from jaxtyping import Int64, UInt8
from torch import Tensor


def regrouped(
    groups: Sequence[tuple[Int64[Tensor, " _"], UInt8[Tensor, "_ c h w"]]],
) -> UInt8[Tensor, "b c h w"]:
    """One batch from groups of images, each with its indices in the batch.

    Full images are copied, which is many times faster than indexed assignment.
    """
    places, images = zip(*groups, strict=True)
    pixels = torch.cat(images)
    return pixels.index_select(0, torch.cat(places).argsort().to(pixels.device))
