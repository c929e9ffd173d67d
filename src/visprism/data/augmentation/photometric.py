"""Photometric operations on 8-bit RGB images, bit for bit as in Pillow.

Eight of them map each value of a channel to another: they give a table of 256 values for each
channel of each image, (b, 3, 256), which `looked_up` applies. `color` and `sharpness` blend
the image with another.
"""

import torch
from jaxtyping import Float64, Int32, Int64, UInt8
from torch import Tensor

Images = UInt8[Tensor, "b 3 h w"]
Tables = UInt8[Tensor, "b #3 256"]
Levels = Int64[Tensor, " b"]
Factors = Float64[Tensor, " b"]

_LUMA = (19595, 38470, 7471)  # of 2^16: ITU-R 601-2, as Pillow rounds it
_HALF = 1 << 15


def looked_up(images: Images, tables: Tables) -> Images:
    """Each value replaced by that in the table of its image and channel."""
    b, c = images.shape[:2]
    values = images.view(b, c, -1).long()
    return tables.expand(b, c, 256).gather(2, values).view_as(images)


def auto_contrast(images: Images) -> Tables:
    """The darkest value of each channel becomes 0 and the lightest 255, linearly between."""
    low, high = images.flatten(2).aminmax(dim=2, keepdim=True)
    low, high = low.double(), high.double()
    # A number over a tensor would be its reciprocal times the number, which rounds twice.
    scale = torch.full_like(low, 255) / (high - low).clamp(min=1)
    stretched = (_values(images) * scale + -low * scale).clamp(0, 255)
    return torch.where(high > low, stretched, _values(images)).byte()


def equalize(images: Images) -> Tables:
    """Histogram equalization of each channel."""
    b, c = images.shape[:2]
    values = images.view(b, c, -1).long()
    counts = torch.zeros(b, c, 256, dtype=torch.int64, device=images.device)
    counts.scatter_add_(2, values, torch.ones_like(values))
    last = counts.gather(2, values.amax(2, keepdim=True))
    step = (values.shape[2] - last) // 255
    below = counts.cumsum(2) - counts
    levelled = (step // 2 + below) // step.clamp(min=1)
    return torch.where(step > 0, levelled.clamp(max=255), _values(images)).byte()


def invert(images: Images) -> Tables:
    """The negative of the image."""
    return (255 - _values(images)).byte().expand(len(images), 1, 256)


def posterize(images: Images, bits: Levels) -> Tables:
    """Only the `bits` highest bits of each value are kept, none to all eight."""
    mask = 256 - (1 << (8 - _each(bits)))
    return (_values(images) & mask).byte()


def solarize(images: Images, threshold: Levels) -> Tables:
    """Values from the threshold on are inverted."""
    values = _values(images)
    return torch.where(values < _each(threshold), values, 255 - values).byte()


def solarize_add(images: Images, addend: Levels) -> Tables:
    """Values below 128 are raised."""
    values = _values(images)
    raised = (values + _each(addend)).clamp(max=255)
    return torch.where(values < 128, raised, values).byte()


def brightness(images: Images, factor: Factors) -> Tables:
    """Black at a factor of 0, the image at 1."""
    return _blended(torch.zeros_like(_values(images)), _values(images), _each(factor))


def contrast(images: Images, factor: Factors) -> Tables:
    """The mean gray of the image at a factor of 0, the image at 1."""
    gray = _gray(images).flatten(1)
    number = gray.shape[1]
    mean = (2 * gray.sum(1) + number) // (2 * number)
    return _blended(_each(mean), _values(images), _each(factor))


def color(images: Images, factor: Factors) -> Images:
    """Grays at a factor of 0, the image at 1."""
    return _blended(_gray(images)[:, None], images, factor.view(-1, 1, 1, 1))


def sharpness(images: Images, factor: Factors) -> Images:
    """A smoothed image at a factor of 0, the image at 1, a sharpened one at 2."""
    wide = images.int()
    inner = wide[:, :, 1:-1, 1:-1]
    across = wide[:, :, :, :-2] + wide[:, :, :, 1:-1] + wide[:, :, :, 2:]
    around = across[:, :, :-2] + across[:, :, 1:-1] + across[:, :, 2:] + 4 * inner
    wide[:, :, 1:-1, 1:-1] = (2 * around + 13) // 26  # rounded thirteenths; the border stays
    return _blended(wide, images, factor.view(-1, 1, 1, 1))


def _values(images: Tensor) -> Int64[Tensor, "1 1 256"]:
    return torch.arange(256, device=images.device)[None, None]


def _each(parameter: Tensor) -> Tensor:
    return parameter[:, None, None]


def _gray(images: Images) -> Int32[Tensor, "b h w"]:
    red, green, blue = images.int().unbind(1)
    return (red * _LUMA[0] + green * _LUMA[1] + blue * _LUMA[2] + _HALF) >> 16


def _blended(first: Tensor, second: Tensor, factor: Tensor) -> UInt8[Tensor, "..."]:
    """The first at a factor of 0, the second at 1, in single precision; truncated to bytes."""
    first, second = first.float(), second.float()
    return (first + factor.float() * (second - first)).clamp_(0, 255).byte()
