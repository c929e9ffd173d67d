"""RandAugment: a few operations on each image, each of which runs on all its images at once.

Source: Cubuk et al. (2020), RandAugment: practical automated data augmentation with a reduced
search space; operations and magnitudes are those of timm.
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Float64, Int64, UInt8
from torch import Tensor

from visprism.data.augmentation import geometric, photometric
from visprism.data.augmentation.geometric import regrouped

Images = UInt8[Tensor, "b 3 h w"]
Operation = Callable[[Images, "Strength"], Images]
Strength = Float64[Tensor, " b"]


# In timm's order, which is that of what is drawn.
OPERATIONS = (
    "auto_contrast",
    "equalize",
    "invert",
    "rotate",
    "posterize",
    "solarize",
    "solarize_add",
    "color",
    "contrast",
    "brightness",
    "sharpness",
    "shear_x",
    "shear_y",
    "translate_x",
    "translate_y",
)
OFF = -1  # the operation of an image that is left as it is

_TABLES = {
    "auto_contrast", "equalize", "invert", "posterize", "solarize", "solarize_add", "contrast",
    "brightness",
}  # fmt: skip


def rand_augmented(
    images: Images,
    operation: Int64[Tensor, "n b"],
    magnitude: Float64[Tensor, "n b"],
    negative: Bool[Tensor, "n b"],
    cubic: Bool[Tensor, "n b"],
    *,
    fill: Sequence[int],
    increasing: bool,
) -> Images:
    """The images after their operations, one after the other.

    Random choices are on the CPU, images on any device, which is not synchronized.

    Args:
        images: RGB in eight bits.
        operation: the place of each in `OPERATIONS`, or `OFF`.
        magnitude: 0 ... 10.
        negative: the sign of operations with two directions.
        cubic: bicubic interpolation, not bilinear, where pixels move.
        fill: color of pixels from outside the image.
        increasing: whether every operation is stronger at a higher magnitude.
    """
    if not len(images):
        return images
    for which, level, minus, kernel in zip(operation, magnitude, negative, cubic, strict=True):
        sign = 1 - 2 * minus.double()
        groups, tables = [], []
        for number in which.unique().tolist():
            chosen = (which == number).nonzero().ravel()
            selected = images.index_select(0, chosen.to(images.device))
            if number == OFF:
                groups.append((chosen, selected))
                continue
            name = OPERATIONS[number]
            amount = strength(name, level[chosen], sign[chosen], increasing=increasing)
            if name in _TABLES:
                tables.append((chosen, selected, _table(name, selected, amount)))
            else:
                resampled = _resampled(name, selected, amount, kernel[chosen], fill)
                groups.append((chosen, resampled))
        if tables:
            places, pixels, rows = zip(*tables, strict=True)
            rows = torch.cat([row.expand(-1, 3, -1) for row in rows])
            groups.append((torch.cat(places), photometric.looked_up(torch.cat(pixels), rows)))
        images = regrouped(groups)
    return images


def strength(name: str, level: Strength, sign: Strength, *, increasing: bool) -> Strength:
    """The parameter of an operation at a magnitude: a factor, threshold, angle or shift.

    Shifts are fractions of the image side, angles are in degrees.
    """
    level = level / 10
    if name in ("color", "contrast", "brightness", "sharpness"):
        if increasing:
            return (1 + sign * (level * 0.9)).clamp(min=0.1)
        return level * 1.8 + 0.1
    if name == "posterize":
        bits = (level * 4).trunc()
        return 4 - bits if increasing else bits
    if name == "solarize":
        threshold = (level * 256).trunc().clamp(max=256)
        return 256 - threshold if increasing else threshold
    if name == "solarize_add":
        return (level * 110).trunc().clamp(max=128)
    return sign * level * _REACH.get(name, 0.0)


_REACH = {
    "rotate": 30.0,  # degrees
    "shear_x": 0.3,
    "shear_y": 0.3,
    "translate_x": 0.45,  # of the side
    "translate_y": 0.45,
}


def _table(name: str, images: Images, amount: Strength) -> UInt8[Tensor, "b _ 256"]:
    if name in ("auto_contrast", "equalize", "invert"):
        return getattr(photometric, name)(images)
    takes_integers = name in ("posterize", "solarize", "solarize_add")
    amount = amount.to(images.device)
    return getattr(photometric, name)(images, amount.long() if takes_integers else amount)


def _resampled(
    name: str,
    images: Images,
    amount: Strength,
    cubic: Bool[Tensor, " b"],
    fill: Sequence[int],
) -> Images:
    if name in ("color", "sharpness"):
        return getattr(photometric, name)(images, amount.to(images.device))
    if name == "rotate":
        return geometric.rotated(images, amount, cubic, fill)
    kind, axis = name.split("_")
    turned = images if axis == "x" else images.transpose(2, 3).contiguous()
    zero = torch.zeros_like(amount)
    slope, offset = (amount, zero) if kind == "shear" else (zero, amount * turned.shape[3])
    resampled = geometric.slid(turned, slope, offset, cubic, fill)
    return resampled if axis == "x" else resampled.transpose(2, 3)
