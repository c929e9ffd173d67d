"""Random crop of the zero-padded image, and horizontal flip."""

import torch
from jaxtyping import Bool, Int64, UInt8
from torch import Tensor
from torch.nn.functional import pad


def framed(
    images: UInt8[Tensor, "b c h w"],
    corner: Int64[Tensor, "2 b"],
    flip: Bool[Tensor, " b"],
    padding: int,
) -> UInt8[Tensor, "b c h w"]:
    """Crops of padded images at `corner`, (top, left) in 0 ... 2 `padding`; some flipped.

    Source: torchvision's RandomCrop with `padding`; He et al. (2016), section 4.2.
    """
    b, c, height, width = images.shape
    x = torch.arange(width, device=images.device)
    rows = torch.arange(height, device=images.device)[:, None] + corner[0, :, None, None]
    columns = torch.where(flip[:, None, None], x.flip(0), x) + corner[1, :, None, None]
    places = (rows * (width + 2 * padding) + columns).view(b, 1, -1).expand(b, c, -1)
    return pad(images, (padding,) * 4).flatten(2).gather(2, places).view_as(images)
