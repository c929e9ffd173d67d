"""Plain networks: a sequence of layers, and a classifier on a map of fixed size."""

from collections.abc import Sequence
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from visprism.core.errors import InputError
from visprism.models.layers.heads import (
    HEADS,
    PooledNet,
    check_head,
    classifier_of,
    mlp,
    pool_of,
)


class PlainNet(PooledNet):
    """Features, pooling and a classifier, under torchvision's names for them.

    The head "mlp" is an MLP of the last map, pooled to `grid` x `grid` positions. Of the
    smallest image, `least` x `least` pixels, one position is left.
    """

    def __init__(
        self,
        features: Sequence[nn.Module],
        *,
        head: str,
        grid: int,
        channels: int,
        num_classes: int,
        least: int,
        feature_info: list[dict[str, Any]],
        dropout_first: bool = False,
    ) -> None:
        super().__init__()
        self.features, self.least = nn.Sequential(*features), least
        self.feature_info = feature_info
        check_head(head, ("mlp", *HEADS))
        self.set_head(head, num_classes, channels, pool="avgpool", last="classifier")
        if head != "mlp":
            self.avgpool: nn.Module = pool_of(head, channels)
            self.classifier: nn.Module = classifier_of(head, channels, num_classes)
            return
        layers = mlp(channels * grid**2, num_classes or 1, dropout_first=dropout_first)
        self.avgpool, self.classifier = _Grid(grid), layers
        self._last = f"classifier.{len(layers) - 1}"
        self.head_hidden_size = self.get_submodule(self._last).in_features  # pyrefly: ignore
        if not num_classes:
            self.set_submodule(self._last, nn.Identity())

    def forward_features(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d i j"]:
        """The last map."""
        if min(x.shape[2:]) < self.least:
            raise InputError(
                f"images must be at least {self.least}x{self.least} pixels, got "
                f"{x.shape[2]}x{x.shape[3]}"
            )
        return self.features(x)

    def forward_head(
        self, x: Float[Tensor, "b d i j"], pre_logits: bool = False
    ) -> Float[Tensor, "b ..."]:
        """Logits from the last map, or with `pre_logits` what the last linear layer reads."""
        x = self.avgpool(x)
        if self._head != "mlp":
            return x if pre_logits else self.classifier(x)
        assert isinstance(self.classifier, nn.Sequential)
        return (self.classifier[:-1] if pre_logits else self.classifier)(x)


class _Grid(nn.AdaptiveAvgPool2d):
    """A map pooled to a grid, as one vector."""

    def forward(self, input: Float[Tensor, "b c h w"]) -> Float[Tensor, "b n"]:
        return super().forward(input).flatten(1)


def stage_info(
    features: Sequence[nn.Module], channels: Sequence[int], reductions: Sequence[int]
) -> list[dict[str, Any]]:
    """Timm's description of the feature maps before each max-pool."""
    ends = [i - 1 for i, layer in enumerate(features) if isinstance(layer, nn.MaxPool2d)]
    return [
        {"num_chs": width, "reduction": reduction, "module": f"features.{end}"}
        for width, reduction, end in zip(channels, reductions, ends, strict=True)
    ]
