"""Settings of augmentation: how training images are changed, as numbers to be written down."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from visprism.core.errors import InputError
from visprism.data.augmentation.rand_augment_spec import RandAugment, read_rand_augment


@dataclass(frozen=True)
class Augmentation:
    """How training images are changed; by default not at all.

    Raises:
        InputError: if a field is outside of its range, or `rand_augment` is not understood.

    Source: Park and Kim (2022), How do vision transformers work?, appendix A; Cubuk et al.
    (2020), RandAugment; Zhong et al. (2020), Random erasing data augmentation; Zhang et al.
    (2018), mixup; Yun et al. (2019), CutMix; all as timm defines them.
    """

    padding: int = 0  # pixels of black about an image, out of which it is cut again
    area: float = 1.0  # smallest part that is cut out and resized; 1: the image as it is
    flip: float = 0.0  # probability of mirroring
    rand_augment: str = ""  # as timm spells it: "rand-m9-n2-mstd1.0"
    erasing: float = 0.0  # probability that a rectangle is replaced by noise
    mixup: float = 0.0  # alpha of the Beta distribution of the part that is the image's own
    cutmix: float = 0.0  # the same where a rectangle is taken from the other image
    mix_probability: float = 1.0  # of a batch, to be mixed at all
    switch_probability: float = 0.5  # of cutmix, where both are on
    smoothing: float = 0.0  # part of a target that is spread over all classes

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, float) and not math.isfinite(value):
                raise InputError(f"{name} is {value}; wants a finite number")
        names = ("flip", "erasing", "mix_probability", "switch_probability", "smoothing")
        for name in ("area", *names):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{name} is {getattr(self, name)}; wants a number from 0 to 1")
        for name in ("padding", "mixup", "cutmix"):
            if getattr(self, name) < 0:
                raise InputError(f"{name} is {getattr(self, name)}; wants 0 (off) or more")
        if self.smoothing == 1:
            raise InputError("smoothing is 1, which leaves nothing of the class; wants less")
        if not self.area:
            raise InputError("area is 0; wants the smallest part of an image that is cut out")
        for name, wants in unread(vars(self)).items():
            value, usual = getattr(self, name), getattr(Augmentation, name)
            if value != usual:
                raise InputError(
                    f"{name} is {value} and would do nothing; it is for {wants}, without which "
                    f"it stays {usual}"
                )
        _ = self.operations  # said now, not in the middle of an epoch

    @property
    def mixes(self) -> bool:
        """Whether images are mixed with one another."""
        return self.mix_probability > 0 and (self.mixup > 0 or self.cutmix > 0)

    @cached_property
    def operations(self) -> RandAugment | None:
        """What `rand_augment` says, or None where it is empty."""
        return read_rand_augment(self.rand_augment) if self.rand_augment else None


def unread(values: Mapping[str, Any]) -> dict[str, str]:
    """The fields that others leave without effect, and what each is for."""
    mixup, cutmix = values["mixup"] > 0, values["cutmix"] > 0
    read_for = {
        "mix_probability": (mixup or cutmix, "mixup or cutmix"),
        "switch_probability": (mixup and cutmix, "mixup with cutmix"),
    }
    return {name: wants for name, (is_read, wants) in read_for.items() if not is_read}


PLAIN = Augmentation()
# What the paper trains on, small images and large ones.
STRONG = Augmentation(
    padding=4,
    flip=0.5,
    rand_augment="rand-m9-n2-mstd1.0",
    mixup=1.0,
    cutmix=0.8,
    smoothing=0.1,
)
STRONG_LARGE = Augmentation(
    area=0.08,
    flip=0.5,
    rand_augment="rand-m9-n2-mstd0.5",
    erasing=0.25,
    mixup=1.0,
    cutmix=0.8,
    smoothing=0.1,
)
WEAK = Augmentation(padding=4, flip=0.5)
