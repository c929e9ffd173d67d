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
    if head in ("gap", "gap_mlp"):
        return MeanPool()
    if head == "attention_pool":
        return AttentionPool(channels)
    raise InputError(f"head must be one of gap, gap_mlp, attention_pool, got {head!r}")


def classifier_of(head: str, channels: int, num_classes: int) -> nn.Module:
    """The classifier of that vector; the identity without classes."""
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
