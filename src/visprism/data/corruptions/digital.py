"""Digital: contrast, elastic transform, pixelation, JPEG, and brightness and saturation.

Brightness and saturation are weather and an extra in the paper; they stand here as they share
the HSV model.
"""

from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torchvision.io import ImageReadMode, decode_jpeg, encode_jpeg

from visprism.data.corruptions.randomness import Randomness
from visprism.data.corruptions.registry import CORRUPTIONS
from visprism.data.corruptions.severities import settings

Images = Float[Tensor, "b 3 h w"]


@CORRUPTIONS.register
def contrast(images: Images, severity: int, randomness: Randomness) -> Images:  # noqa: ARG001
    """Each colour drawn towards its mean over the image."""
    factor = settings("contrast", severity, images.shape[2:])
    mean = images.mean((2, 3), keepdim=True)
    return mean + factor * (images - mean)


@CORRUPTIONS.register
def brightness(images: Images, severity: int, randomness: Randomness) -> Images:  # noqa: ARG001
    """The value in HSV raised; hue and saturation stay."""
    return brightened(images, settings("brightness", severity, images.shape[2:]))


def brightened(images: Images, added: float) -> Images:
    """Images whose value in HSV is `added` larger, within 0 ... 1.

    With hue and saturation kept, the colours are in proportion to the value; black, which has
    neither, becomes grey.
    """
    value = images.amax(1, keepdim=True)
    raised = (value + added).clamp_(0, 1)
    return torch.where(value > 0, images * (raised / value), raised)


@CORRUPTIONS.register
def saturate(images: Images, severity: int, randomness: Randomness) -> Images:  # noqa: ARG001
    """The saturation in HSV changed; hue and value stay. Grey has the hue of red."""
    factor, added = settings("saturate", severity, images.shape[2:])
    value = images.amax(1, keepdim=True)
    span = value - images.amin(1, keepdim=True)
    # Where the value is 0 the saturation is 0, and so is every colour.
    before = torch.where(span > 0, span / value, 0.0)
    after = (before * factor + added).clamp_(0, 1)
    coloured = value - (value - images) * (after / before)
    grey = torch.cat([value, (value * (1 - after)).expand(-1, 2, -1, -1)], dim=1)
    return torch.where(span > 0, coloured, grey)


@CORRUPTIONS.register
def jpeg_compression(
    images: Images,
    severity: int,
    randomness: Randomness,  # noqa: ARG001
) -> Images:
    """Saved as a JPEG of low quality, and read."""
    quality = settings("jpeg_compression", severity, images.shape[2:])
    pixels = list(images.mul(255).round_().byte().cpu())
    files = [encode_jpeg(each, quality=quality) for each in pixels]
    read = torch.stack([decode_jpeg(file, mode=ImageReadMode.RGB) for file in files])
    return read.to(images.device).float().div_(255)


@CORRUPTIONS.register
def pixelate(images: Images, severity: int, randomness: Randomness) -> Images:  # noqa: ARG001
    """Made smaller and enlarged again, both by Pillow's box filter."""
    side = settings("pixelate", severity, images.shape[2:])
    height, width = images.shape[2:]
    pixels = images * 255
    for rows, columns in ((int(height * side), int(width * side)), (height, width)):
        across = _box(pixels.shape[3], columns).to(images.device)
        down = _box(pixels.shape[2], rows).to(images.device)
        # Eight bits after each direction, the horizontal one first, as Pillow has it.
        pixels = (pixels @ across.T).add_(0.5).floor_()
        pixels = (down @ pixels).add_(0.5).floor_()
    return pixels.div_(255)


@lru_cache(maxsize=64)
def _box(before: int, after: int) -> Float[Tensor, "after before"]:
    """Pillow's box filter of a line: the mean of the pixels whose middle lies in the box."""
    scale = before / after
    reach = 0.5 * max(scale, 1)
    weights = np.zeros((after, before), np.float32)
    for i in range(after):
        middle = (i + 0.5) * scale
        first = max(0, int(middle - reach + 0.5))
        last = min(before, int(middle + reach + 0.5))
        at = (np.arange(first, last) - middle + 0.5) / max(scale, 1)
        held = (at > -0.5) & (at <= 0.5)
        weights[i, first:last] = held / held.sum()
    return torch.from_numpy(weights)
