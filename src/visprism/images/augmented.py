"""Augmented batches: random crops, flips, RandAugment, erasing, mixing and soft targets.

timm draws from the global generators of Python and NumPy, which are seeded for each image and
then restored. So a batch depends only on the seed and its place in the run.
"""

import math
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64, UInt8
from PIL import Image
from torch import Generator, Tensor
from torch.nn.functional import pad

from visprism.core.errors import InputError
from visprism.core.preprocessing import Preprocessing
from visprism.core.run import stream
from visprism.images.augmentation import Augmentation
from visprism.images.image_set import ImageSet
from visprism.images.pixels import center_crop, normalized, pictures, stacked


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
    """
    rank, world = part
    half = torch.arange((count + 1) // 2)
    pairs = torch.stack([half, count - 1 - half], 1).ravel()[:count]
    assigned = pairs[count * rank // world : count * (rank + 1) // world].sort().values
    partner = count - 1 - assigned if mixes else assigned
    places = torch.cat([assigned, partner]).unique()
    return places, torch.searchsorted(places, assigned), torch.searchsorted(places, partner)


SoftBatch = tuple[Float[Tensor, "b c h w"], Float[Tensor, "b k"]]

_GLOBAL = threading.Lock()  # of the generators that all threads share
_CROP, _OPERATIONS, _ERASING = range(3)  # uses of the seed of an image


@dataclass(frozen=True)
class AugmentationPlan:
    """The random choices of one batch in one process."""

    numbers: Int64[Tensor, " m"]  # indices of the images that it prepares, in the data set
    corner: Int64[Tensor, "2 m"]  # (top, left) of the crop out of the padded image
    flip: Bool[Tensor, " m"]
    seeds: Int64[Tensor, " m"]  # of everything else that is done to one image
    mix: Mix
    assigned: Int64[Tensor, " n"]  # indices into `numbers` of the images of this process
    partner: Int64[Tensor, " n"]  # the same of those that they are mixed with


@dataclass(frozen=True)
class Augmenter:
    """Random views of images, and batches of them."""

    augmentation: Augmentation
    preprocessing: Preprocessing
    num_classes: int
    seed: int

    def plan(
        self, numbers: Int64[Tensor, " b"], *use: object, part: tuple[int, int] = (0, 1)
    ) -> AugmentationPlan:
        """The plan for the batch of the images `numbers`; `use` names its random stream.

        `part` is (rank, world size) of a process that prepares a share of the batch.
        """
        augmentation, count = self.augmentation, len(numbers)
        generator = stream(self.seed, "augment", *use)
        uniform = torch.rand(3, count, generator=generator, dtype=torch.float64)
        corner = ((2 * augmentation.padding + 1) * uniform[:2]).long()
        flip = uniform[2] < augmentation.flip
        seeds = torch.randint(2**62, (count,), generator=generator)
        mix = draw_mix(augmentation, self.preprocessing.size, generator)
        m, *share = batch_share(count, part, mixes=augmentation.mixes)
        return AugmentationPlan(numbers[m], corner[:, m], flip[m], seeds[m], mix, *share)

    def views(
        self, images: Sequence[Image.Image] | UInt8[Tensor, "m c h w"], plan: AugmentationPlan
    ) -> UInt8[Tensor, "m c h w"]:
        """Views of decoded images of any size, or of crops in memory.

        Source: Szegedy et al. (2015), Going deeper with convolutions, section 6, for random
        resized crops; Cubuk et al. (2020), RandAugment; both as in timm.
        """
        augmentation = self.augmentation
        if not len(images):  # of a share without an image
            return torch.empty(0, 3, *self.preprocessing.size, dtype=torch.uint8)
        if augmentation.area < 1:
            images = pictures(images) if isinstance(images, Tensor) else images
            images = stacked(_each(self._crop, images, plan.seeds, _CROP))
        elif not isinstance(images, Tensor):
            images = stacked(center_crop(image, self.preprocessing) for image in images)
        images = shifted(images, plan.corner, plan.flip, augmentation.padding)
        if not augmentation.rand_augment:
            return images
        return stacked(_each(self._operate, pictures(images), plan.seeds, _OPERATIONS))

    def batch(
        self,
        pixels: UInt8[Tensor, "m c h w"],
        targets: Int64[Tensor, " m"],
        plan: AugmentationPlan,
    ) -> SoftBatch:
        """Views normalized, erased and mixed, and the probabilities of their classes."""
        images = normalized(pixels, self.preprocessing)
        if self.augmentation.erasing:
            self._erase(images, plan.seeds)
        rows = soft(targets, self.num_classes, self.augmentation.smoothing)
        assigned, partner = (x.to(pixels.device) for x in (plan.assigned, plan.partner))
        inputs, probabilities = images[assigned], rows[assigned]
        if plan.mix.weight == 1:
            return inputs, probabilities
        weight = plan.mix.weight
        probabilities = weight * probabilities + (1 - weight) * rows[partner]
        return mixed(inputs, images[partner], plan.mix), probabilities

    def _erase(self, images: Float[Tensor, "m c h w"], seeds: Int64[Tensor, " m"]) -> None:
        """Fill a rectangle of some images with normal noise or zeros, in place.

        Source: Zhong et al. (2020), Random erasing data augmentation, as in timm.
        """
        blank = torch.ones(1, *images.shape[2:])
        masks = _each(self._eraser, [blank.clone() for _ in images], seeds, _ERASING)
        for image, mask, seed in zip(images, masks, seeds.tolist(), strict=True):
            if mask.all():
                continue
            noise = torch.zeros(image.shape)
            if self.augmentation.erasing_mode == "pixel":
                noise = torch.randn(image.shape, generator=Generator().manual_seed(seed))
            image.copy_(torch.where(mask.to(image).bool(), image, noise.to(image)))

    # timm takes seconds to import, and most runs do without it.

    @cached_property
    def _crop(self) -> Callable:
        from timm.data.transforms import RandomResizedCropAndInterpolation

        stated = self.augmentation.crop_interpolation == "preprocessing"
        return RandomResizedCropAndInterpolation(
            self.preprocessing.size,
            scale=(self.augmentation.area, 1.0),
            interpolation=self.preprocessing.interpolation if stated else "random",
        )

    @cached_property
    def _operate(self) -> Callable:
        from timm.data.auto_augment import rand_augment_transform

        color = tuple(min(255, round(255 * value)) for value in self.preprocessing.mean)
        return rand_augment_transform(self.augmentation.rand_augment, {"img_mean": color})

    @cached_property
    def _eraser(self) -> Callable:
        from timm.data.random_erasing import RandomErasing

        return RandomErasing(self.augmentation.erasing, mode="const", device="cpu")


def shifted(
    images: UInt8[Tensor, "b c h w"],
    corner: Int64[Tensor, "2 b"],
    flip: Bool[Tensor, " b"],
    padding: int,
) -> UInt8[Tensor, "b c h w"]:
    """Crops of padded images at `corner`, (top, left) in 0 ... 2 `padding`; some flipped.

    Source: torchvision's RandomCrop with `padding`; He et al. (2016), section 4.2.
    """
    height, width = images.shape[2:]
    crops = images.clone()
    if padding:
        wide, corners = pad(images, (padding,) * 4), corner.T.tolist()
        for crop, image, (top, left) in zip(crops, wide, corners, strict=True):
            crop.copy_(image[:, top : top + height, left : left + width])
    if flip.any():
        crops[flip] = crops[flip].flip(3)
    return crops


def _each(
    transform: Callable, images: Sequence, seeds: Int64[Tensor, " m"], use: int
) -> list[Any]:
    """Timm's transform of each image, by its seed."""
    with _GLOBAL:
        states = random.getstate(), np.random.get_state()  # noqa: NPY002
        transformed = []
        try:
            for image, seed in zip(images, seeds.tolist(), strict=True):
                random.seed(4 * seed + use)
                np.random.seed([use, seed % 2**32, seed >> 32])  # noqa: NPY002
                transformed.append(transform(image))
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])  # noqa: NPY002
    return transformed


def checked_labels(image_set: ImageSet, num_classes: int | None) -> int:
    """The number of classes of labeled images that can be trained on."""
    classes = image_set.num_classes if num_classes is None else num_classes
    name, targets = image_set.name, image_set.targets
    if len(targets) and targets.min() < 0:
        raise InputError(f"images must have labels for training, but {name} has no labels")
    if len(targets) and targets.max() >= classes:
        raise InputError(
            f"labels must be below the number of classes ({classes}), got "
            f"{targets.max()} in {name}. Use a model of {image_set.num_classes} classes."
        )
    return classes
