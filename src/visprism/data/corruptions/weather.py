"""Weather: snow, frost and fog; brightness is in `digital`, with saturation."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from visprism.data.corruptions.filters import motion_blurred, zoomed
from visprism.data.corruptions.layers import ice, plasma
from visprism.data.corruptions.randomness import Randomness
from visprism.data.corruptions.registry import CORRUPTIONS, in_unit
from visprism.data.corruptions.severities import severity_parameters

Images = Float[Tensor, "b 3 h w"]

_GRAY = (0.299, 0.587, 0.114)  # ITU-R BT.601, as OpenCV has it


@CORRUPTIONS.register
@in_unit
def fog(images: Images, severity: int, randomness: Randomness) -> Images:
    """A layer of clouds, scaled so that the maximum stays."""
    strength, decay = severity_parameters("fog", severity, images)
    height, width = images.shape[2:]
    side = 1 << (max(height, width) - 1).bit_length()
    clouds = plasma(side, decay, randomness)[:, None, :height, :width]
    brightest = images.amax((1, 2, 3), keepdim=True)
    return (images + strength * clouds) * (brightest / (brightest + strength))


@CORRUPTIONS.register
@in_unit
def frost(images: Images, severity: int, randomness: Randomness) -> Images:
    """A layer of ice, which is generated, not photographed; see `layers.ice`."""
    of_image, of_ice = severity_parameters("frost", severity, images)
    return of_image * images + of_ice * ice(images.shape[2:], randomness)


@CORRUPTIONS.register
@in_unit
def snow(images: Images, severity: int, randomness: Randomness) -> Images:
    """Flakes that fall at 45 to 135 degrees, over an image that is a little whiter."""
    mean, deviation, zoom, threshold, radius, sigma, share = severity_parameters(
        "snow", severity, images
    )
    flakes = flakes_of(images.shape[2:], (mean, deviation, zoom, threshold), randomness)
    angles = (90 * randomness.uniform(1)[:, 0] - 135).tolist()
    fallen = torch.stack(
        [
            motion_blurred(layer, radius, sigma, angle)
            for layer, angle in zip(flakes, angles, strict=True)
        ]
    )
    return snowed(images, fallen, share)


def flakes_of(
    size: Sequence[int], looks: Sequence[float | int], randomness: Randomness
) -> Float[Tensor, "b h w"]:
    """Snow without motion: enlarged noise above a threshold.

    Args:
        size: of the images, (height, width).
        looks: mean and standard deviation of the noise, zoom factor, and threshold.
        randomness: of each image.
    """
    mean, deviation, zoom, threshold = looks
    layer = zoomed(deviation * randomness.normal(*size)[:, None] + mean, zoom)[:, 0]
    return torch.where(layer < threshold, 0.0, layer).clamp_(0, 1).mul_(255).floor_().div_(255)


def snowed(images: Images, layer: Float[Tensor, "b h w"], share: float | int) -> Images:
    """Whitened images with the layer of snow and its rotation by 180 degrees."""
    weights = torch.tensor(_GRAY, device=images.device)[:, None, None]
    gray = (images * weights).sum(1, keepdim=True)
    white = share * images + (1 - share) * torch.maximum(images, 1.5 * gray + 0.5)
    layer = layer.mul(255).round_().div_(255)[:, None]
    return white + layer + layer.flip(2, 3)
