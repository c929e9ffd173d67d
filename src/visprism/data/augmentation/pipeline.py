"""The pipeline: from the images of a batch to what the model is trained on, by one plan."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor

from visprism.core.preprocessing import Preprocessing
from visprism.core.rng import stream
from visprism.data.augmentation.draws import Drawn, draw
from visprism.data.augmentation.erasing import erased
from visprism.data.augmentation.mix_pairs import RankSlice, share
from visprism.data.augmentation.mixing import Mix, draw_mix, mixed, soft
from visprism.data.augmentation.pad_crop_flip import framed
from visprism.data.augmentation.rand_augment import rand_augmented
from visprism.data.augmentation.random_resized_crop import cut_out
from visprism.data.augmentation.settings import Augmentation

SoftBatch = tuple[Float[Tensor, "b c h w"], Float[Tensor, "b k"]]


@dataclass(frozen=True)
class Plan:
    """What one process does for one batch."""

    numbers: Int64[Tensor, " m"]  # of the images that it prepares, in the data set
    share: RankSlice
    drawn: Drawn  # for these images
    mix: Mix


def planned(
    augmentation: Augmentation,
    numbers: Int64[Tensor, " b"],
    size: Sequence[int],
    part: tuple[int, int],
    *use: object,
    seed: int,
) -> Plan:
    """The plan for the batch of the images `numbers`; `use` tells it from all other batches."""
    generator = stream(seed, "augment", *use)
    drawn = draw(augmentation, len(numbers), size, generator)
    mix = draw_mix(augmentation, size, generator)
    own = share(len(numbers), part, mixes=augmentation.mixes)
    return Plan(numbers[own.places], own, drawn.of(own.places), mix)


def changed(
    pixels: UInt8[Tensor, "b c h w"],
    drawn: Drawn,
    augmentation: Augmentation,
    preprocessing: Preprocessing,
) -> UInt8[Tensor, "b c h w"]:
    """The images cut out, mirrored, and after the operations of RandAugment."""
    device, settings = pixels.device, augmentation.operations
    if augmentation.area < 1:
        pixels = cut_out(pixels, drawn.window, preprocessing.interpolation)
    if augmentation.padding or augmentation.flip:
        corner, flip = drawn.corner.to(device), drawn.flip.to(device)
        pixels = framed(pixels, corner, flip, augmentation.padding)
    if settings is None:
        return pixels
    return rand_augmented(
        pixels,
        drawn.operation,
        drawn.magnitude,
        drawn.negative,
        drawn.cubic,
        fill=[min(255, round(255 * value)) for value in preprocessing.mean],
        increasing=settings.increasing,
    )


def finished(
    pixels: UInt8[Tensor, "m c h w"],
    targets: Int64[Tensor, " m"],
    plan: Plan,
    augmentation: Augmentation,
    preprocessing: Preprocessing,
    num_classes: int,
) -> SoftBatch:
    """Images standardised, erased and mixed, and the probabilities of their classes."""
    images = erased(standardised(pixels, preprocessing), plan.drawn.box, plan.drawn.noise)
    rows = soft(targets, num_classes, augmentation.smoothing)
    own, partner = plan.share.own.to(pixels.device), plan.share.partner.to(pixels.device)
    mine, probabilities = images.index_select(0, own), rows[own]
    if plan.mix.own == 1:
        return mine, probabilities
    theirs = images.index_select(0, partner)
    probabilities = plan.mix.own * probabilities + (1 - plan.mix.own) * rows[partner]
    return mixed(mine, theirs, plan.mix), probabilities


def standardised(
    pixels: UInt8[Tensor, "b c h w"], preprocessing: Preprocessing
) -> Float[Tensor, "b c h w"]:
    """Pixels in 0 ... 1, less the mean, over the standard deviation, on their device."""
    mean, std = (
        255 * torch.tensor(values, device=pixels.device)[:, None, None]
        for values in (preprocessing.mean, preprocessing.std)
    )
    return pixels.float().sub_(mean).div_(std)
