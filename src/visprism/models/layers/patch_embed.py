"""Patch embedding: timm's, with checks of the image size."""

from typing import Any

import timm.layers
from jaxtyping import Float
from torch import Tensor

from visprism.core.errors import InputError


def check_divisible(img_size: int | tuple[int, ...], patch_size: int) -> None:
    """Check that patches divide the image."""
    sides = (img_size, img_size) if isinstance(img_size, int) else tuple(img_size)
    if patch_size < 1 or any(side < patch_size or side % patch_size for side in sides):
        raise InputError(
            "the image size must be a multiple of the patch size "
            f"({patch_size}), got {'x'.join(map(str, sides))}"
        )


class PatchEmbed(timm.layers.PatchEmbed):
    """Patches of an image as tokens; their size must divide the image size."""

    def __init__(
        self, *, img_size: int | tuple[int, int], patch_size: int, **rest: Any
    ) -> None:
        check_divisible(img_size, patch_size)
        super().__init__(img_size=img_size, patch_size=patch_size, **rest)
        self.patch = patch_size
        self.size = (img_size, img_size) if isinstance(img_size, int) else img_size

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b ..."]:
        """The tokens."""
        height, width = x.shape[2:]
        if self.strict_img_size and (height, width) != self.size:
            expected, given = f"{self.size[0]}x{self.size[1]}", f"{height}x{width}"
            raise InputError(
                f"images must be {expected} pixels, because the MLP over tokens has one weight "
                f"per pair of positions, got {given}. Build the network with another img_size."
            )
        check_divisible((height, width), self.patch)
        return super().forward(x)
