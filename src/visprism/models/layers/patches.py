"""Patches: timm's, with one sentence where the image does not fit."""

from typing import Any

import timm.layers
from jaxtyping import Float
from torch import Tensor

from visprism.core.errors import InputError


def refuse_remainder(img_size: int | tuple[int, ...], patch_size: int) -> None:
    """Check that patches divide the image.

    Raises:
        InputError: if pixels would be left over.
    """
    sides = (img_size, img_size) if isinstance(img_size, int) else tuple(img_size)
    if patch_size < 1 or any(side < patch_size or side % patch_size for side in sides):
        raise InputError(
            f"images of {'x'.join(map(str, sides))} pixels do not divide into patches of "
            f"{patch_size}x{patch_size}; choose images of a multiple of {patch_size} pixels"
        )


class PatchEmbed(timm.layers.PatchEmbed):
    """Patches of an image as tokens; refuses images that they do not divide."""

    def __init__(
        self,
        *,
        img_size: int | tuple[int, int],
        patch_size: int,
        **rest: Any,  # noqa: ANN401 (as timm takes them)
    ) -> None:
        refuse_remainder(img_size, patch_size)
        super().__init__(img_size=img_size, patch_size=patch_size, **rest)
        self.patch = patch_size
        self.size = (img_size, img_size) if isinstance(img_size, int) else img_size

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b ..."]:
        """The tokens.

        Raises:
            InputError: if patches do not divide the images, or the network takes images of one
                size only and these have another.
        """
        height, width = x.shape[2:]
        if self.strict_img_size and (height, width) != self.size:
            wanted, given = f"{self.size[0]}x{self.size[1]}", f"{height}x{width}"
            raise InputError(
                f"this network mixes the tokens of images of {wanted} pixels by learned "
                f"weights and got {given}; build it with another img_size"
            )
        refuse_remainder((height, width), self.patch)
        return super().forward(x)
