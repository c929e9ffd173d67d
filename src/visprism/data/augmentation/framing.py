"""Crop and flip: each image cut out of a black frame about it, and mirrored or not."""

import torch
from jaxtyping import Bool, Int64, UInt8
from torch import Tensor
from torch.nn.functional import pad


def padded_crop(
    images: UInt8[Tensor, "b c h w"], corner: Int64[Tensor, "2 b"], padding: int
) -> UInt8[Tensor, "b c h w"]:
    """Images cut out again at `corner`, (top, left) in 0 ... 2 `padding`, of a black frame.

    Source: torchvision's RandomCrop with `padding`; He et al. (2016), section 4.2.
    """
    if not padding:
        return images
    _, _, height, width = images.shape
    framed = pad(images, (padding,) * 4)
    windows = framed.unfold(2, height, 1).unfold(3, width, 1)
    each = torch.arange(len(images), device=images.device)
    return windows[each, :, corner[0], corner[1]]


def mirrored(
    images: UInt8[Tensor, "b c h w"], chosen: Bool[Tensor, " b"]
) -> UInt8[Tensor, "b c h w"]:
    """The chosen images with left and right exchanged."""
    return torch.where(chosen[:, None, None, None], images.flip(-1), images)
