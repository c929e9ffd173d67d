"""Mixing: mixup and cutmix of a batch with itself in reverse order, and soft targets.

timm's `Mixup` takes whole batches of an even size; here a batch may be odd, and shared by
processes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Generator, Tensor

from visprism.images.augmentation import Augmentation


@dataclass(frozen=True)
class Mix:
    """How the images of a batch are mixed, each with its partner."""

    weight: float = 1.0  # of the image itself in pixels and target; with a box, its area
    box: tuple[int, int, int, int] | None = None  # top, bottom, left, right: the partner's


def draw_mix(augmentation: Augmentation, size: Sequence[int], generator: Generator) -> Mix:
    """Mixup or cutmix of a batch of images of (height, width) `size`.

    With cutmix, the weight of the image is the area outside the box, also if the box reaches
    over the border.

    Source: Zhang et al. (2018), mixup, and Yun et al. (2019), CutMix, alternating as in timm.
    """
    seed = int(torch.randint(2**62, (), generator=generator))
    random = np.random.default_rng(seed)  # torch's Beta takes no generator
    if not augmentation.mixes or random.random() >= augmentation.mix_probability:
        return Mix()
    both = augmentation.mixup > 0 and augmentation.cutmix > 0
    switched = random.random() < augmentation.switch_probability
    if switched if both else augmentation.cutmix > 0:
        weight = random.beta(augmentation.cutmix, augmentation.cutmix)
        return cut(weight, (random.random(), random.random()), size)
    return Mix(random.beta(augmentation.mixup, augmentation.mixup))


def cut(weight: float, center: Sequence[float], size: Sequence[int]) -> Mix:
    """The box that leaves the fraction `weight` of an image, around a relative `center`."""
    edges = []
    for side, position in zip(size, center, strict=True):
        length, middle = int(side * math.sqrt(1 - weight)), int(side * position)
        edges += [max(0, middle - length // 2), min(side, middle + (length + 1) // 2)]
    top, bottom, left, right = edges
    taken = (bottom - top) * (right - left) / (size[0] * size[1])
    return Mix(1 - taken, (top, bottom, left, right))


def mixed(
    images: Float[Tensor, "b c h w"], partners: Float[Tensor, "b c h w"], mix: Mix
) -> Float[Tensor, "b c h w"]:
    """Each image mixed with its partner; changes both in place."""
    if mix.box is None:
        return images.mul_(mix.weight).add_(partners.mul_(1 - mix.weight))
    top, bottom, left, right = mix.box
    images[:, :, top:bottom, left:right] = partners[:, :, top:bottom, left:right]
    return images


def soft(
    targets: Int64[Tensor, " b"], num_classes: int, smoothing: float
) -> Float[Tensor, "b {num_classes}"]:
    """Probabilities: 1 - s for the class, and s / K more for every class."""
    spread = smoothing / num_classes
    rows = torch.full((len(targets), num_classes), spread, device=targets.device)
    return rows.scatter_(1, targets[:, None], 1 - smoothing + spread)


def batch_share(
    count: int, part: tuple[int, int], *, mixes: bool
) -> tuple[Int64[Tensor, " m"], Int64[Tensor, " n"], Int64[Tensor, " n"]]:
    """The share of process `part`, (rank, world), of a batch of `count` images.

    The partner of an image is the one at the mirrored index. Shares differ by at most one
    image. An image and its partner are in the same share, but for one pair at most, so that few
    images are prepared twice.

    Returns:
        Indices into the batch of all images that are prepared; indices into these of the
        images of the share; the same of their partners.
    """
    rank, world = part
    half = torch.arange((count + 1) // 2)
    pairs = torch.stack([half, count - 1 - half], 1).ravel()[:count]
    assigned = pairs[count * rank // world : count * (rank + 1) // world].sort().values
    partner = count - 1 - assigned if mixes else assigned
    places = torch.cat([assigned, partner]).unique()
    return places, torch.searchsorted(places, assigned), torch.searchsorted(places, partner)
