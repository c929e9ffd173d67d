"""Digital: contrast, elastic transform, pixelation, JPEG, and brightness and saturation.

The paper counts brightness as weather and saturation as an extra; they are here because both
use HSV.
"""

from collections.abc import Callable
from io import BytesIO

import numpy as np
import torch
from jaxtyping import Float, UInt8
from PIL import Image
from torch import Tensor

from visprism.data.corruptions.randomness import Randomness
from visprism.data.corruptions.registry import CORRUPTIONS, in_unit
from visprism.data.corruptions.severities import severity_parameters

Images = Float[Tensor, "b 3 h w"]
Pixels = UInt8[Tensor, "b 3 h w"]


@CORRUPTIONS.register
@in_unit
def contrast(images: Images, severity: int, randomness: Randomness) -> Images:  # noqa: ARG001
    """Each channel is blended with its mean over the image."""
    factor = severity_parameters("contrast", severity, images)
    mean = images.mean((2, 3), keepdim=True)
    return mean + factor * (images - mean)


@CORRUPTIONS.register
@in_unit
def brightness(images: Images, severity: int, randomness: Randomness) -> Images:  # noqa: ARG001
    """The value in HSV is raised; hue and saturation stay."""
    return brightened(images, severity_parameters("brightness", severity, images))


def brightened(images: Images, added: float | int) -> Images:
    """Images whose value in HSV is `added` larger, within 0 ... 1.

    With hue and saturation kept, the colors are in proportion to the value; black, which has
    neither, becomes gray.
    """
    value = images.amax(1, keepdim=True)
    raised = (value + added).clamp_(0, 1)
    return torch.where(value > 0, images * (raised / value), raised)


@CORRUPTIONS.register
@in_unit
def saturate(images: Images, severity: int, randomness: Randomness) -> Images:  # noqa: ARG001
    """The saturation in HSV is changed; hue and value stay. Gray has the hue of red."""
    factor, added = severity_parameters("saturate", severity, images)
    value = images.amax(1, keepdim=True)
    span = value - images.amin(1, keepdim=True)
    # Where the value is 0 the saturation is 0, and so is every color.
    before = torch.where(span > 0, span / value, 0.0)
    after = (before * factor + added).clamp_(0, 1)
    colored = value - (value - images) * (after / before)
    gray = torch.cat([value, (value * (1 - after)).expand(-1, 2, -1, -1)], dim=1)
    return torch.where(span > 0, colored, gray)


@CORRUPTIONS.register
def jpeg_compression(images: Pixels, severity: int, randomness: Randomness) -> Pixels:  # noqa: ARG001
    """Saved as a JPEG of low quality, and read."""
    quality = severity_parameters("jpeg_compression", severity, images)

    def compressed(image: Image.Image) -> Image.Image:
        file = BytesIO()
        image.save(file, "JPEG", quality=quality)
        return Image.open(file)

    return _by_pillow(images, compressed)


@CORRUPTIONS.register
def pixelate(images: Pixels, severity: int, randomness: Randomness) -> Pixels:  # noqa: ARG001
    """Made smaller by Pillow's box filter, and enlarged again."""
    side = severity_parameters("pixelate", severity, images)
    height, width = images.shape[2:]

    def coarse(image: Image.Image) -> Image.Image:
        small = image.resize((int(width * side), int(height * side)), Image.Resampling.BOX)
        # Enlarging by a box is taking the nearest pixel.
        return small.resize((width, height), Image.Resampling.NEAREST)

    return _by_pillow(images, coarse)


def _by_pillow(images: Pixels, change: Callable[[Image.Image], Image.Image]) -> Pixels:
    """Each image changed by a function of Pillow images."""
    changed = torch.empty(images.shape, dtype=torch.uint8)
    for planes, pixels in zip(changed.numpy(), images.cpu().numpy(), strict=True):
        image = Image.merge("RGB", [Image.fromarray(plane) for plane in pixels])
        for plane, channel in zip(planes, change(image).split(), strict=True):
            plane[:] = np.asarray(channel)
    return changed.to(images.device)
