"""The augmentation pipeline: from the images of a batch to the model's input."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor

from visprism.core.preprocessing import Preprocessing
from visprism.core.run import stream
from visprism.data.augmentation.crops import cut_out, framed
from visprism.data.augmentation.draws import RandomNumbers, draw
from visprism.data.augmentation.erasing import erased
from visprism.data.augmentation.geometric import regrouped
from visprism.data.augmentation.mixing import (
    BatchShare,
    Mix,
    batch_share,
    draw_mix,
    mixed,
    soft,
)
from visprism.data.augmentation.rand_augment import rand_augmented
from visprism.data.augmentation.settings import Augmentation

SoftBatch = tuple[Float[Tensor, "b c h w"], Float[Tensor, "b k"]]


@dataclass(frozen=True)
class AugmentationPlan:
    """The augmentation of one batch in one process."""

    numbers: Int64[Tensor, " m"]  # indices of the images that it prepares, in the data set
    share: BatchShare
    random: RandomNumbers  # of these images
    mix: Mix


def planned(
    augmentation: Augmentation,
    numbers: Int64[Tensor, " b"],
    size: Sequence[int],
    part: tuple[int, int],
    *use: object,
    seed: int,
) -> AugmentationPlan:
    """The plan for the batch of the images `numbers`; `use` names its random stream."""
    generator = stream(seed, "augment", *use)
    random = draw(augmentation, len(numbers), size, generator)
    mix = draw_mix(augmentation, size, generator)
    rank_slice = batch_share(len(numbers), part, mixes=augmentation.mixes)
    places = rank_slice.places
    return AugmentationPlan(numbers[places], rank_slice, random.of(places), mix)


def changed(
    pixels: UInt8[Tensor, "b c h w"],
    random: RandomNumbers,
    augmentation: Augmentation,
    preprocessing: Preprocessing,
) -> UInt8[Tensor, "b c h w"]:
    """The images after random crops, flips and RandAugment."""
    device, settings = pixels.device, augmentation.operations
    if augmentation.area < 1:
        pixels = _cropped(pixels, random, augmentation, preprocessing)
    if augmentation.padding or augmentation.flip:
        corner, flip = random.corner.to(device), random.flip.to(device)
        pixels = framed(pixels, corner, flip, augmentation.padding)
    if settings is None:
        return pixels
    return rand_augmented(
        pixels,
        random.operation,
        random.magnitude,
        random.negative,
        random.cubic,
        fill=[min(255, round(255 * value)) for value in preprocessing.mean],
        increasing=settings.increasing,
    )


def _cropped(
    pixels: UInt8[Tensor, "b c h w"],
    random: RandomNumbers,
    augmentation: Augmentation,
    preprocessing: Preprocessing,
) -> UInt8[Tensor, "b c h w"]:
    """The random crops, each image by its interpolation."""
    if augmentation.crop_interpolation == "preprocessing":
        return cut_out(pixels, random.window, preprocessing.interpolation)
    groups = []
    for selected, interpolation in (
        (~random.crop_cubic, "bilinear"),
        (random.crop_cubic, "bicubic"),
    ):
        positions = selected.nonzero().ravel()
        if len(positions):
            images = pixels.index_select(0, positions.to(pixels.device))
            crops = cut_out(images, random.window[:, positions], interpolation)
            groups.append((positions, crops))
    return regrouped(groups) if groups else pixels


def finished(
    pixels: UInt8[Tensor, "m c h w"],
    targets: Int64[Tensor, " m"],
    plan: AugmentationPlan,
    augmentation: Augmentation,
    preprocessing: Preprocessing,
    num_classes: int,
) -> SoftBatch:
    """Images normalized, erased and mixed, and the probabilities of their classes."""
    images = erased(
        normalized(pixels, preprocessing),
        plan.random.box,
        plan.random.noise,
        augmentation.erasing_mode,
    )
    rows = soft(targets, num_classes, augmentation.smoothing)
    assigned, partner = (
        plan.share.assigned.to(pixels.device),
        plan.share.partner.to(pixels.device),
    )
    inputs, probabilities = images.index_select(0, assigned), rows[assigned]
    if plan.mix.weight == 1:
        return inputs, probabilities
    partners = images.index_select(0, partner)
    probabilities = plan.mix.weight * probabilities + (1 - plan.mix.weight) * rows[partner]
    return mixed(inputs, partners, plan.mix), probabilities


def normalized(
    pixels: UInt8[Tensor, "b c h w"], preprocessing: Preprocessing
) -> Float[Tensor, "b c h w"]:
    """Pixels in [0, 1] minus the mean, divided by the standard deviation, on their device."""
    mean, std = (
        255 * torch.tensor(values, device=pixels.device)[:, None, None]
        for values in (preprocessing.mean, preprocessing.std)
    )
    return pixels.float().sub_(mean).div_(std)
