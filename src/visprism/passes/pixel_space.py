"""Pixel space: between the normalized images that a model takes and pixels in 0 ... 1."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from visprism.core.errors import InputError

_SLACK = 1e-4  # rounding of normalized pixels


@dataclass(frozen=True)
class PixelSpace:
    """How pixels in 0 ... 1 were normalized: minus the mean, over the standard deviation."""

    mean: Sequence[float]  # by channel
    std: Sequence[float]

    def pixels(self, images: object) -> Float[Tensor, "b c h w"]:
        """The pixels of normalized images."""
        if not isinstance(images, Tensor) or images.ndim != 4:
            raise InputError(
                "images must be one tensor (B, C, H, W), so that their pixels can be changed, "
                f"got {type(images).__name__}"
            )
        if not images.shape[1] == len(self.mean) == len(self.std):
            raise InputError(
                f"mean and std must have one value for each of {images.shape[1]} channels, got "
                f"{len(self.mean)} and {len(self.std)}"
            )
        pixels = images * self._of(self.std, images) + self._of(self.mean, images)
        low, high = float(pixels.min()), float(pixels.max())
        if not (low >= -_SLACK and high <= 1 + _SLACK):
            raise InputError(
                "pixels must be between 0 and 1 when the normalization is undone, got "
                f"{low:.3g} to {high:.3g}. Pass the mean and std that the images were "
                "normalized with."
            )
        return pixels.clamp(0, 1)

    def normalized(self, pixels: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        """Pixels as the model takes them."""
        return (pixels - self._of(self.mean, pixels)) / self._of(self.std, pixels)

    def in_pixels(self, difference: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        """A difference of normalized images as a difference of pixels."""
        return difference * self._of(self.std, difference)

    def _of(self, values: Sequence[float], like: Tensor) -> Float[Tensor, "c 1 1"]:
        return torch.tensor(tuple(values), dtype=like.dtype, device=like.device)[:, None, None]
