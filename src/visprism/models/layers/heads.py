"""Classifier heads: how the last feature map becomes logits."""

from abc import ABC, abstractmethod
from typing import Any, Literal

import timm.layers
from jaxtyping import Float
from timm.layers import AttentionPoolLatent
from torch import Tensor, nn

from visprism.core.errors import InputError

Head = Literal["gap", "gap_mlp", "attention_pool"]
TokenHead = Literal["token", "gap", "gap_mlp", "attention_pool"]
MLPHead = Literal["mlp", "gap", "gap_mlp", "attention_pool"]
_HIDDEN = 4096  # in VGG and in the "GAP MLP" of Park and Kim's code
_HEAD_DIM = 64


class MeanPool(nn.Module):
    """The mean over the positions of a map: global average pooling (GAP)."""

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c"]:
        """One vector for each image."""
        return x.mean((2, 3))


class AttentionPool(nn.Module):
    """Attention pooling: multi-head attention of one learned query to the map, and an MLP.

    Source: Lee et al. (2019), Set transformer, sec. 3.2; Zhai et al. (2022), Scaling vision
    transformers, sec. 2.2, for its place in a classifier.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        if channels % _HEAD_DIM:
            raise InputError(
                f"channels must be a multiple of {_HEAD_DIM} for "
                f"head='attention_pool', got {channels}. Choose head='gap'."
            )
        self.pool = AttentionPoolLatent(channels, num_heads=channels // _HEAD_DIM)

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c"]:
        """One vector for each image."""
        return self.pool(x.flatten(2).mT)


def pool_of(head: str, channels: int) -> nn.Module:
    """The pooling of a feature map to one vector per image."""
    return AttentionPool(channels) if head == "attention_pool" else MeanPool()


def classifier_of(head: str, channels: int, num_classes: int) -> nn.Module:
    """The classifier of that vector; the identity without classes."""
    if not num_classes:
        return nn.Identity()
    return (mlp if head == "gap_mlp" else nn.Linear)(channels, num_classes)


def mlp(channels: int, num_classes: int, *, dropout_first: bool = False) -> nn.Sequential:
    """The three linear layers of VGG, with dropout in training (AlexNet's comes first)."""
    layers: list[nn.Module] = []
    for width in (channels, _HIDDEN):
        linear: list[nn.Module] = [nn.Linear(width, _HIDDEN), nn.ReLU(inplace=True)]
        layers += [nn.Dropout(), *linear] if dropout_first else [*linear, nn.Dropout()]
    return nn.Sequential(*layers, nn.Linear(_HIDDEN, num_classes))


class PooledNet(nn.Module, ABC):
    """A network that pools its last map to one vector and computes logits from it."""

    num_classes: int
    pool_at = "global_pool"  # names of the modules that pool the map and that make logits
    classifier_at = "fc"

    @abstractmethod
    def forward_features(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d i j"]:
        """The last map."""

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b ..."]:
        """Logits, or features without classes."""
        x = self.get_submodule(self.pool_at)(self.forward_features(x))
        return self.get_submodule(self.classifier_at)(x)


# Patch embedding: timm's, with checks of the image size.


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
