"""Corruption of batches: eight-bit images in, eight-bit images out.

A corruption takes images of eight bits, a severity and the randomness of each image, and gives
images of eight bits; `corruption` makes one of a function of numbers in 0 ... 1.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, wraps
from typing import Any

import torch
from jaxtyping import Float, Int64, UInt8
from torch import Generator, Tensor

from visprism.core.errors import InputError
from visprism.core.registry import Registry
from visprism.core.run import stream
from visprism.images.corruptions.severities import check_severity, severity_parameters

CORRUPTIONS = Registry("corruption", "visprism.images.corruptions")

Images = Float[Tensor, "b 3 h w"]  # in 0 ... 1
Pixels = UInt8[Tensor, "b 3 h w"]

# In the order of the paper's table 1.
COMMON = (
    "gaussian_noise", "shot_noise", "impulse_noise",
    "defocus_blur", "glass_blur", "motion_blur", "zoom_blur",
    "snow", "frost", "fog", "brightness",
    "contrast", "elastic_transform", "pixelate", "jpeg_compression",
)  # fmt: skip
EXTRA = ("speckle_noise", "gaussian_blur", "spatter", "saturate")  # for validation, there

# Published images are truncated to eight bits, from float64. In float32 a value that
# should be an integer may lie below it by a hundredth of this.
_ROUNDING = 1e-3
_CACHED = 131_072  # numbers per chunk, so that it fits into the cache of a core


@dataclass(frozen=True)
class Randomness:
    """A generator for each image of a batch, which depends on the seed and the image's index.

    Numbers are drawn on the CPU, so that they are the same for every device.
    """

    seed: int
    use: str
    numbers: Sequence[int]  # of the images
    device: torch.device

    @cached_property
    def generators(self) -> list[Generator]:
        """One for each image."""
        return [stream(self.seed, self.use, number) for number in self.numbers]

    def of(self, part: slice) -> "Randomness":
        """The randomness of some of the images, from the start."""
        return replace(self, numbers=self.numbers[part])

    def normal(self, *shape: int) -> Float[Tensor, "b ..."]:
        """Standard normal numbers."""
        return self._each(lambda generator: torch.randn(shape, generator=generator))

    def uniform(self, *shape: int) -> Float[Tensor, "b ..."]:
        """Uniform numbers in [0, 1)."""
        return self._each(lambda generator: torch.rand(shape, generator=generator))

    def integers(self, low: int, high: int, *shape: int) -> Int64[Tensor, "b ..."]:
        """Integers in [low, high)."""
        return self._each(
            lambda generator: torch.randint(low, high, shape, generator=generator)
        )

    def poisson(self, rates: Float[Tensor, "b ..."]) -> Float[Tensor, "b ..."]:
        """Poisson counts with these means."""
        pairs = zip(rates.cpu(), self.generators, strict=True)
        counts = [torch.poisson(rate, generator=generator) for rate, generator in pairs]
        return torch.stack(counts).to(self.device)

    def _each(self, draw: Callable[[Generator], Tensor]) -> Tensor:
        return torch.stack([draw(generator) for generator in self.generators]).to(self.device)


def corruption(function: Callable[[Images, Any, Randomness], Images]) -> Callable:
    """Register a corruption of numbers in 0 ... 1, given its parameters of `severities`."""

    @CORRUPTIONS.register
    @wraps(function)
    def of_pixels(images: Pixels, severity: int, randomness: Randomness) -> Pixels:
        parameters = severity_parameters(function.__name__, severity, images)
        corrupted = torch.empty_like(images)
        chunk_size = len(images) if images.is_cuda else _CACHED // images[0].numel() + 1
        for start in range(0, len(images), chunk_size):
            part = slice(start, start + chunk_size)
            numbers = images[part].float().div_(255)
            corrupted[part] = eight_bit(function(numbers, parameters, randomness.of(part)))
        return corrupted

    return of_pixels


def eight_bit(images: Float[Tensor, "..."]) -> UInt8[Tensor, "..."]:
    """Numbers in 0 ... 1 as integers up to 255, truncated as in the published code."""
    return images.mul(255).add_(_ROUNDING).clamp_(0, 255).byte()


def corrupt(
    images: UInt8[Tensor, "b 3 h w"],
    corruption: str,
    severity: int,
    *,
    seed: int = 0,
    numbers: Sequence[int] | None = None,
) -> UInt8[Tensor, "b 3 h w"]:
    """The images with one of the corruptions of ImageNet-C, on the device of the images.

    Severities come from the published set whose images are about this size: CIFAR-10-C up
    to a side of 45 pixels, Tiny ImageNet-C up to 119, ImageNet-C beyond. The images differ from
    the stored sets: noise is drawn again, frost is generated, and nothing is stored as
    JPEG.

    Args:
        images: RGB of eight bits.
        corruption: a name in `visprism.images.corruptions.CORRUPTIONS`.
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
    return lambda images, rows: corrupt(images, corruption, severity, seed=seed, numbers=rows)


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
