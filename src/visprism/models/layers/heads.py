"""Classifier heads: how the last feature map becomes logits."""

from typing import Literal

from jaxtyping import Float
from timm.layers import AttentionPoolLatent
from torch import Tensor, nn

from visprism.core.errors import InputError

Head = Literal["gap", "gap_mlp", "attention_pool"]
_HIDDEN = 4096  # VGG's, and those of the "GAP MLP" of Park and Kim's code
_HEAD_DIM = 64


class MeanPool(nn.Module):
    """The mean over the positions of a map: global average pooling (GAP)."""

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c"]:
        """One vector for each image."""
        return x.mean((2, 3))


class AttentionPool(nn.Module):
    """What one learned query finds in a map by multi-head attention, and an MLP behind it.

    Source: Lee et al. (2019), Set transformer, sec. 3.2; Zhai et al. (2022), Scaling vision
    transformers, sec. 2.2, for its place in a classifier.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        if channels % _HEAD_DIM:
            raise InputError(
                f"head='attention_pool' wants a multiple of {_HEAD_DIM} channels, got "
                f"{channels}; choose head='gap'"
            )
        self.pool = AttentionPoolLatent(channels, num_heads=channels // _HEAD_DIM)

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c"]:
        """One vector for each image."""
        return self.pool(x.flatten(2).mT)


def pool_of(head: str, channels: int) -> nn.Module:
    """What turns a feature map into one vector for each image.

    Raises:
        InputError: if there is no such head, or it does not fit the channels.
    """
    if head in ("gap", "gap_mlp"):
        return MeanPool()
    if head == "attention_pool":
        return AttentionPool(channels)
    raise InputError(f"unknown head {head!r}; choose gap, gap_mlp or attention_pool")


def classifier_of(head: str, channels: int, num_classes: int) -> nn.Module:
    """What turns that vector into logits; with no classes the vector is handed on."""
    if not num_classes:
        return nn.Identity()
    if head != "gap_mlp":
        return nn.Linear(channels, num_classes)
    return mlp(channels, num_classes)


def mlp(channels: int, num_classes: int) -> nn.Sequential:
    """The three linear layers of VGG, with dropout in training."""
    layers: list[nn.Module] = []
    for width in (channels, _HIDDEN):
        layers += [nn.Linear(width, _HIDDEN), nn.ReLU(inplace=True), nn.Dropout()]
    return nn.Sequential(*layers, nn.Linear(_HIDDEN, num_classes))
