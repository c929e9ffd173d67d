"""Classifiers that can be reset, with timm's interface.

Every network of the zoo has `num_classes`, `num_features`, `forward_features`, `forward_head`,
`get_classifier` and `reset_classifier`; what `forward_head` gives with `pre_logits=True` is
what the network gives without classes.
"""

from abc import ABC, abstractmethod

from jaxtyping import Float
from torch import Tensor, nn

from visprism.core.errors import InputError
from visprism.models.layers.heads import classifier_of


class PooledNet(nn.Module, ABC):
    """A network that pools its last map to one vector and computes logits from it.

    A family calls `set_classifier_info` when its modules are made, and defines
    `forward_features`.
    """

    num_classes: int
    num_features: int  # channels of the last map
    head_hidden_size: int  # numbers that the classifier reads

    def set_classifier_info(
        self, head: str, num_classes: int, channels: int, *, pool: str, last: str
    ) -> None:
        """Register the modules of the classifier.

        Args:
            head: which head it was built with; all but "gap_mlp" end in one linear layer.
            num_classes: logits; 0 for features.
            channels: of the last map.
            pool: name of the module that makes a vector of the map.
            last: name of the module that makes logits.
        """
        self.num_classes = num_classes
        self.num_features = self.head_hidden_size = channels
        self._head, self._pool, self._last = head, pool, last

    @abstractmethod
    def forward_features(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d i j"]:
        """The last map."""

    def forward_head(
        self,
        x: Float[Tensor, "b d i j"],
        pre_logits: bool = False,
    ) -> Float[Tensor, "b ..."]:
        """Logits from the last map, or with `pre_logits` the vector before the classifier."""
        x = self.get_submodule(self._pool)(x)
        return x if pre_logits else self.get_submodule(self._last)(x)

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b ..."]:
        """Logits; features, where there are no classes."""
        return self.forward_head(self.forward_features(x))

    def get_classifier(
        self,
        name_only: bool = False,
    ) -> nn.Module | str:
        """The classifier, or its name."""
        return self._last if name_only else self.get_submodule(self._last)

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """Give the network a new classifier of the kind that it has, with random weights.

        Args:
            num_classes: logits; 0 for features.
            global_pool: None keeps the pooling, as "avg" does where it is the mean, "" takes it
                away.
        """
        if global_pool == "avg" and self._head in ("gap", "gap_mlp"):
            global_pool = None
        if global_pool not in (None, "") or (global_pool == "" and num_classes):
            raise InputError(
                "global_pool must be None (unchanged), or '' (none) with "
                f"num_classes=0, for a {type(self).__name__}, got "
                f"{global_pool!r} with num_classes={num_classes}. Build the "
                "network with another head instead."
            )
        if global_pool == "":
            self.set_submodule(self._pool, nn.Identity())
        self.num_classes = num_classes
        new = classifier_of(self._head, self.head_hidden_size, num_classes)
        self.set_submodule(self._last, like_model(new, self))


class KeepsMLP(nn.Module):
    """Before one of timm's classes: its "gap_mlp" head stays one when it is reset."""

    mlp_at: str | None = None  # name of the module that makes logits, where it is an MLP

    @property
    def pooling(self) -> str:
        """The pooling of tokens, by timm's name."""
        return str(self.global_pool)

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """Give the network a new classifier of the kind that it has, with random weights."""
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


def check_pooling(model: nn.Module, global_pool: str | None, pooling: str) -> None:
    """Check that the requested pooling is that of the network, or none."""
    if global_pool not in (None, "", pooling):
        raise InputError(
            f"global_pool must be None or {pooling!r} (unchanged), or '' "
            f"(none), for a {type(model).__name__}, got {global_pool!r}. Build "
            "the network with another head instead."
        )


def like_model(new: nn.Module, model: nn.Module) -> nn.Module:
    """`new` on the device, with the precision and in the mode of `model`."""
    weight = next(model.parameters())
    return new.to(weight.device, weight.dtype).train(model.training)
