"""Corruption of batches: eight-bit images in, eight-bit images out."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import UInt8
from torch import Tensor

from visprism.core.errors import InputError
from visprism.data.corruptions.randomness import Randomness
from visprism.data.corruptions.registry import CORRUPTIONS
from visprism.data.corruptions.severities import check_severity


def corrupt(
    images: UInt8[Tensor, "b 3 h w"],
    corruption: str,
    severity: int,
    *,
    seed: int = 0,
    numbers: Sequence[int] | None = None,
) -> UInt8[Tensor, "b 3 h w"]:
    """The images with one of the corruptions of ImageNet-C, on the device of the images.

    Severities are those of the published set whose images are of about this size: CIFAR-10-C up
    to a side of 45 pixels, Tiny ImageNet-C up to 119, ImageNet-C beyond. The images differ from
    those of the stored sets: noise is drawn again, frost is generated, and nothing is stored as
    JPEG.

    Args:
        images: RGB of eight bits.
        corruption: a name in `visprism.data.corruptions.CORRUPTIONS`.
        severity: 1 (mild) to 5 (severe).
        seed: of the randomness.
        numbers: indices of the images in the data; the noise of an image depends on the seed
            and on its index, not on its batch. By default 0, 1, 2, ...

    Source: Hendrycks and Dietterich (2019), Benchmarking neural network robustness to common
    corruptions and perturbations.
    """
    function = CORRUPTIONS[corruption]
    check_severity(severity)
    check_images(images)
    numbers = range(len(images)) if numbers is None else numbers
    if len(numbers) != len(images):
        raise InputError(f"numbers must be one per image ({len(images)}), got {len(numbers)}")
    if not len(images):
        return images
    return function(images, severity, Randomness(seed, corruption, numbers, images.device))


def change_of(
    corruption: str, severity: int, seed: int = 0
) -> Callable[[UInt8[Tensor, "b 3 h w"], Sequence[int]], UInt8[Tensor, "b 3 h w"]]:
    """A corruption as a function of pixels and of the indices of the images in the data."""

    def change(images: UInt8[Tensor, "b 3 h w"], indices: Sequence[int]) -> Tensor:
        return corrupt(images, corruption, severity, seed=seed, numbers=indices)

    return change


def check_images(images: Tensor) -> None:
    """Check that images are RGB of eight bits and large enough."""
    if images.dtype != torch.uint8:
        kind = str(images.dtype).removeprefix("torch.")
        raise InputError(
            f"images must be uint8, 0 to 255, before normalization, got {kind}. Use "
            "(255 * x).round().byte() for images in 0 ... 1."
        )
    if images.ndim != 4 or images.shape[1] != 3:
        raise InputError(
            f"images must be RGB of shape (images, 3, height, width), got {tuple(images.shape)}"
        )
    if min(images.shape[2:]) < 16:
        raise InputError(
            "images must have sides of at least 16 pixels, got "
            f"{images.shape[2]}x{images.shape[3]}"
        )
