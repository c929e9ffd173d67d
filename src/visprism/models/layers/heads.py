"""Classifier heads: how the last feature map becomes logits, with timm's interface.

Every network of the zoo has `num_classes`, `num_features`, `forward_features`, `forward_head`,
`get_classifier` and `reset_classifier`. With `pre_logits=True`, `forward_head` returns what the
network returns without classes.
"""

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
    """A network that pools its last map to one vector and computes logits from it.

    A family calls `set_head` when its other modules are made, and defines `forward_features`.
    """

    num_classes: int
    num_features: int  # channels of the last map
    head_hidden_size: int  # numbers that the classifier reads

    def set_head(
        self, head: str, num_classes: int, channels: int, *, pool: str, last: str
    ) -> None:
        """Name the modules that pool the last map of `channels` and that make logits of it."""
        self.num_classes = num_classes
        self.num_features = self.head_hidden_size = channels
        self._head, self._pool, self._last = head, pool, last

    @abstractmethod
    def forward_features(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d i j"]:
        """The last map."""

    def forward_head(
        self, x: Float[Tensor, "b d i j"], pre_logits: bool = False
    ) -> Float[Tensor, "b ..."]:
        """Logits from the last map, or with `pre_logits` what the last layer reads."""
        x = self.get_submodule(self._pool)(x)
        layers = self.get_submodule(self._last.rpartition(".")[0])
        for layer in list(layers)[:-1] if isinstance(layers, nn.Sequential) else ():
            x = layer(x)
        return x if pre_logits else self.get_submodule(self._last)(x)

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b ..."]:
        """Logits, or features without classes."""
        return self.forward_head(self.forward_features(x))

    def get_classifier(self, name_only: bool = False) -> nn.Module | str:
        """The classifier, or its name."""
        return self._last if name_only else self.get_submodule(self._last)

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """Give the network a new classifier of the same kind, with random weights.

        `global_pool` None keeps the pooling, as "avg" does if it is the mean. "" removes it.
        """
        check_pooling(self, global_pool, "avg" if self._head in ("gap", "gap_mlp") else None)
        if global_pool == "":
            if num_classes:
                raise InputError(f"num_classes must be 0 for global_pool='', got {num_classes}")
            self.set_submodule(self._pool, nn.Identity())
        self.num_classes = num_classes
        new = classifier_of(self._head, self.head_hidden_size, num_classes)
        self.set_submodule(self._last, like_model(new, self))


class KeepsMLP(nn.Module):
    """Before one of timm's classes: its "gap_mlp" head stays one when it is reset."""

    mlp_at: str | None = None  # name of the module that makes logits, if it is an MLP

    @property
    def pooling(self) -> str:
        """The pooling of tokens, by timm's name."""
        return str(self.global_pool)

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """Give the network a new classifier of the same kind, with random weights."""
        check_pooling(self, global_pool, self.pooling)
        super().reset_classifier(num_classes, global_pool)  # pyrefly: ignore (timm's class has it)
        if self.mlp_at is not None:
            self.give_mlp(self.mlp_at, num_classes)

    def give_mlp(self, name: str, num_classes: int) -> None:
        """Replace the module `name` by VGG's MLP, now and at each reset."""
        self.mlp_at = name
        channels = int(self.num_features)  # pyrefly: ignore (timm's class has it)
        self.set_submodule(
            name, like_model(classifier_of("gap_mlp", channels, num_classes), self)
        )


def check_pooling(model: nn.Module, global_pool: str | None, pooling: str | None) -> None:
    """Require that the pooling stays as it is, or is removed."""
    if global_pool not in (None, "", pooling):
        unchanged = f"None or {pooling!r}" if pooling else "None"
        raise InputError(
            f"global_pool must be {unchanged} (unchanged), or '' (none), for a "
            f"{type(model).__name__}, got {global_pool!r}. Build the network with another head "
            "instead."
        )


def like_model(new: nn.Module, model: nn.Module) -> nn.Module:
    """`new` on the device, with the precision and in the mode of `model`."""
    weight = next(model.parameters())
    return new.to(weight.device, weight.dtype).train(model.training)


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
