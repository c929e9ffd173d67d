"""Augmentation: hyperparameters, and the paper's values."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from visprism.core.errors import InputError
from visprism.core.options import check_options, check_used, option, unused

# timm's notation: m is the magnitude (10), n the number of operations (2), p the probability of
# each (0.5), mstd the deviation of the magnitude (0), mmax its upper end (10), and inc1 makes
# every operation stronger with it.
_RAND_AUGMENT = re.compile(
    r"rand(-(m|mmax)\d+|-n[1-9]\d*|-mstd\d+(\.\d+)?|-p(0(\.\d+)?|1(\.0+)?)|-inc[01])*"
)


@dataclass(frozen=True)
class Augmentation:
    """How training images are augmented; by default not at all.

    Source: Park and Kim (2022), How do vision transformers work?, appendix A; Cubuk et al.
    (2020), RandAugment; Zhong et al. (2020), Random erasing data augmentation; Zhang et al.
    (2018), mixup; Yun et al. (2019), CutMix; all as timm defines them.
    """

    padding: int = option(
        0, "black pixels on each side, out of which the image is cropped at random", minimum=0
    )
    area: float = option(
        1.0,
        "smallest fraction of the area that is cropped and resized; 1: no crop",
        above=0,
        maximum=1,
    )
    crop_interpolation: Literal["preprocessing", "random"] = option(
        "preprocessing", "the preprocessing's, or bilinear or bicubic at random"
    )
    flip: float = option(0.0, "probability of a horizontal flip", minimum=0, maximum=1)
    rand_augment: str = option("", "in timm's notation, such as rand-m9-n2-mstd1.0; or empty")
    erasing: float = option(0.0, "probability that a rectangle is erased", minimum=0, maximum=1)
    erasing_mode: Literal["pixel", "const"] = option(
        "pixel", "in the rectangle, after normalization: normal noise by pixel, or zero"
    )
    mixup: float = option(
        0.0, "alpha of the Beta distribution of the weight of the image itself", minimum=0
    )
    cutmix: float = option(
        0.0, "alpha of the Beta distribution of the area of the image itself", minimum=0
    )
    mix_probability: float = option(1.0, "that a batch is mixed", minimum=0, maximum=1)
    switch_probability: float = option(
        0.5, "of cutmix instead of mixup, where both are on", minimum=0, maximum=1
    )
    smoothing: float = option(
        0.0, "probability that is spread over all classes", minimum=0, below=1
    )

    def __post_init__(self) -> None:
        check_options(self)
        check_used(self, unused_fields(vars(self)))
        if self.rand_augment and not _RAND_AUGMENT.fullmatch(self.rand_augment):
            raise InputError(
                "rand_augment must be like rand-m9-n2-mstd1.0 (integers m, n and mmax, p up to "
                f"1, mstd, inc0 or inc1), got {self.rand_augment!r}"
            )

    @property
    def mixes(self) -> bool:
        """Whether images are mixed with one another."""
        return self.mix_probability > 0 and (self.mixup > 0 or self.cutmix > 0)


def unused_fields(values: Mapping[str, Any]) -> dict[str, str]:
    """The fields that have no effect, and the setting that each one belongs to."""
    mixup, cutmix = values["mixup"] > 0, values["cutmix"] > 0
    used = {
        "crop_interpolation": (values["area"] < 1, "a random crop (area below 1)"),
        "erasing_mode": (values["erasing"] > 0, "erasing"),
        "mix_probability": (mixup or cutmix, "mixup or cutmix"),
        "switch_probability": (mixup and cutmix, "both mixup and cutmix"),
    }
    return unused(used)


PLAIN = Augmentation()
# The paper's strong augmentation of small and of large images.
STRONG = Augmentation(
    padding=4, flip=0.5, rand_augment="rand-m9-n2-mstd1.0", mixup=1.0, cutmix=0.8, smoothing=0.1
)
STRONG_LARGE = Augmentation(
    area=0.08,
    crop_interpolation="random",
    flip=0.5,
    rand_augment="rand-m9-n2-mstd0.5",
    erasing=0.25,
    erasing_mode="const",
    mixup=1.0,
    cutmix=0.8,
    smoothing=0.1,
)
WEAK = Augmentation(padding=4, flip=0.5)
WEAK_LARGE = Augmentation(area=0.08, crop_interpolation="random", flip=0.5)
