"""Pixel space: between the images that a model takes and pixels in 0 ... 1."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from visprism.core.errors import InputError

_SLACK = 1e-4  # rounding of standardised pixels


@dataclass(frozen=True)
class PixelSpace:
    """How pixels in 0 ... 1 were standardised: less the mean, over the standard deviation."""

    mean: Sequence[float]  # by channel
    std: Sequence[float]

    def pixels(self, images: object) -> Float[Tensor, "b c h w"]:
        """The pixels of standardised images.

        Raises:
            InputError: if the images are no tensor, have other channels, or are not in 0 ... 1.
        """
        if not isinstance(images, Tensor) or images.ndim != 4:
            raise InputError(
                f"wanted images (B, C, H, W) in a tensor, got {type(images).__name__}; noise "
                "and attacks change pixels"
            )
        if images.shape[1] != len(self.mean) or len(self.mean) != len(self.std):
            raise InputError(
                f"the images have {images.shape[1]} channels, but there are {len(self.mean)} "
                f"means and {len(self.std)} deviations; give one of each for every channel"
            )
        pixels = images * self._of(self.std, images) + self._of(self.mean, images)
        low, high = float(pixels.min()), float(pixels.max())
        if not (low >= -_SLACK and high <= 1 + _SLACK):
            raise InputError(
                f"the images lie in {low:.3g} ... {high:.3g} once their standardisation is "
                "undone, and not in 0 ... 1; give the mean and std that they were made with"
            )
        return pixels.clamp(0, 1)

    def standardised(self, pixels: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        """Pixels as the model takes them."""
        return (pixels - self._of(self.mean, pixels)) / self._of(self.std, pixels)

    def in_pixels(self, difference: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        """What is added to standardised images, as it is added to pixels."""
        return difference * self._of(self.std, difference)

    def _of(self, values: Sequence[float], like: Tensor) -> Float[Tensor, "c 1 1"]:
        return torch.tensor(tuple(values), dtype=like.dtype, device=like.device)[:, None, None]
