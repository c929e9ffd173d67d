"""Preprocessing: from a decoded image to the tensor that a model was trained on."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

import torch
from jaxtyping import Float
from torch import Tensor

from visprism.core.errors import InputError

# "none": pixels in 0 ... 1. "half": pixels in -1 ... 1, as the first ViTs have them.
Statistics = tuple[tuple[float, ...], tuple[float, ...]]  # mean and std by channel
NORMALIZATIONS: dict[str, Statistics] = {
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616)),
    "cifar100": ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
    "half": ((0.5,) * 3, (0.5,) * 3),
    "none": ((0.0,) * 3, (1.0,) * 3),
}
# Attribute of a module that returns several tensors: the name of the one with the logits.
OUTPUT = "visprism_output"
NOT_STATED = (
    "pixels in [0, 1] (no normalization stated; --normalization or preprocessing= sets it)"
)
TENSORS_NOT_STATED = "tensors as given (no normalization stated; preprocessing= states it)"

_SLACK = 0.5 / 255  # rounding of normalized images, also to bfloat16


def unnormalized(
    images: Tensor, mean: Sequence[float], std: Sequence[float]
) -> Float[Tensor, "b c h w"]:
    """Pixels in 0 ... 1 of normalized images, in at least float32."""
    kind = torch.promote_types(images.dtype, torch.float32)
    shift, scale = (
        torch.tensor(tuple(v), dtype=kind, device=images.device)[:, None, None]
        for v in (mean, std)
    )
    pixels = images * scale + shift
    low, high = float(pixels.min()), float(pixels.max())
    if not (low >= -_SLACK and high <= 1 + _SLACK):
        raise InputError(
            "pixels must be between 0 and 1 when the normalization is undone, got "
            f"{low:.3g} to {high:.3g}. Pass the mean and std that the images were normalized "
            "with, or clip the pixels before."
        )
    return pixels.clamp(0, 1)


@dataclass(frozen=True)
class Preprocessing:
    """Resize, center crop, scale to 0 ... 1, and standardize, as a model's authors did it."""

    size: tuple[int, int]  # (height, width) of the model's input
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)  # per channel, of pixels in 0 ... 1
    std: tuple[float, ...] = (0.229, 0.224, 0.225)
    interpolation: str = "bicubic"  # "nearest", "bilinear" or "bicubic"; antialiased
    crop: float = 1.0  # side of the center crop over the resized image's side
    stated: bool = True  # False: nothing states mean and std, and pixels stay in 0 ... 1
    squash: bool = False  # whether the resized image has the model's aspect ratio

    def __post_init__(self) -> None:
        if len(self.mean) != len(self.std) or not self.mean:
            raise InputError(
                "mean and std must have one value per channel each, got "
                f"{len(self.mean)} and {len(self.std)}"
            )
        checks = {
            "size": (self.size, min(self.size) >= 1, "at least one pixel each way"),
            "mean": (
                self.mean,
                all(isfinite(m) and m <= 1 for m in self.mean),
                "finite numbers up to 1, as pixels are in [0, 1]",
            ),
            "std": (self.std, all(isfinite(s) and s > 0 for s in self.std), "numbers above 0"),
            "crop": (self.crop, 0 < self.crop <= 1, "a number above 0 and up to 1"),
        }
        for name, (value, right, constraint) in checks.items():
            if not right:
                raise InputError(f"{name} must be {constraint}, got {value!r}")

    def __str__(self) -> str:
        """A phrase for provenance and the caption of a figure."""
        h, w = self.size
        crop = f", crop {self.crop:g}" if self.crop != 1 else ""
        squash = ", squashed" if self.squash else ""
        return f"{h}x{w} {self.interpolation}{squash}{crop}, {self.normalization}"

    @property
    def normalization(self) -> str:
        """Mean and standard deviation in words: ``mean and std of imagenet``."""
        if not self.stated:
            return NOT_STATED
        statistics = (self.mean, self.std)
        if statistics == NORMALIZATIONS["none"]:
            return "pixels in [0, 1]"
        known = [name for name, values in NORMALIZATIONS.items() if values == statistics]
        if known:
            return f"mean and std of {known[0]}"
        mean, std = (", ".join(f"{v:.4g}" for v in values) for values in statistics)
        return f"mean ({mean}), std ({std})"
