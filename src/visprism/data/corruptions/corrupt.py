"""Corruption of batches: eight-bit images in, eight-bit images out."""

from collections.abc import Sequence

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
    """The images with one of the corruptions of ImageNet-C, on the device where they lie.

    Severities are those of the published set whose images are of about this size: CIFAR-10-C up
    to a side of 45 pixels, Tiny ImageNet-C up to 119, ImageNet-C beyond. These images are not
    those of the stored sets: noise is other noise, frost is generated, and nothing has been
    saved as JPEG.

    Args:
        images: RGB of eight bits.
        corruption: a name in `visprism.data.corruptions.CORRUPTIONS`.
        severity: 1 (mild) to 5 (severe).
        seed: of the randomness.
        numbers: of the images in their data set; an image's noise depends on the seed and on
            its number, not on its batch. By default 0, 1, 2, ...

    Raises:
        InputError: if there is no such corruption or severity, or the images are not RGB of
            eight bits.

    Source: Hendrycks and Dietterich (2019), Benchmarking neural network robustness to common
    corruptions and perturbations.
    """
    function = CORRUPTIONS[corruption]
    check_severity(severity)
    check_images(images)
    numbers = range(len(images)) if numbers is None else numbers
    if len(numbers) != len(images):
        raise InputError(f"got {len(numbers)} numbers for {len(images)} images; give one each")
    if not len(images):
        return images
    return function(images, severity, Randomness(seed, corruption, numbers, images.device))


def check_images(images: Tensor) -> None:
    """Whether these are RGB images of eight bits.

    Raises:
        InputError: if not.
    """
    if images.dtype != torch.uint8:
        kind = str(images.dtype).removeprefix("torch.")
        raise InputError(
            f"images to corrupt are of type {kind}; wants uint8, 0 to 255, before they are "
            "standardised: (255 * x).round().byte() of images in 0 ... 1"
        )
    if images.ndim != 4 or images.shape[1] != 3:
        raise InputError(
            f"images to corrupt have shape {tuple(images.shape)}; wants RGB images "
            "(images, 3, height, width)"
        )
    if min(images.shape[2:]) < 16:
        raise InputError(
            f"images to corrupt are {images.shape[2]}x{images.shape[3]}; corruptions are "
            "defined for sides of 16 pixels and more"
        )
