"""Plain networks: a sequence of layers, and a classifier on a map of fixed size."""

from collections.abc import Callable, Sequence
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from visprism.core.errors import InputError
from visprism.models.layers.classifier import PooledNet
from visprism.models.layers.heads import classifier_of, pool_of


class PlainNet(PooledNet):
    """Features, pooling and a classifier, under torchvision's names for them."""

    def __init__(
        self,
        features: nn.Sequential,
        *,
        head: str,
        grid: int,
        mlp: Callable[[int, int], nn.Sequential],
        channels: int,
        num_classes: int,
        least: int,
        feature_info: list[dict[str, Any]],
    ) -> None:
        """Assemble a network.

        Args:
            features: the row of layers.
            head: "mlp" for `mlp` on a map of `grid` x `grid`, or another of the zoo's.
            grid: side of that map.
            mlp: makes a classifier for so many numbers and classes, with logits from its last
                layer.
            channels: of the map.
            num_classes: logits; 0 for a network that gives features.
            least: side of the smallest image of which a pixel is left, in pixels.
            feature_info: channels, reduction and module of its feature maps, as timm has it.
        """
        super().__init__()
        self.features, self.least, self.feature_info = features, least, feature_info
        if head == "mlp":
            self.avgpool: nn.Module = _Grid(grid)
            self.classifier: nn.Module = mlp(channels * grid**2, num_classes or 1)
        else:
            self.avgpool = pool_of(head, channels)
            self.classifier = classifier_of(head, channels, num_classes)
        self.set_classifier_info(head, num_classes, channels, pool="avgpool", last="classifier")
        if isinstance(self.classifier, nn.Sequential) and head == "mlp":
            *_, last = self.classifier
            assert isinstance(last, nn.Linear)
            self.head_hidden_size = last.in_features
            self._last = f"classifier.{len(self.classifier) - 1}"
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
        self,
        x: Float[Tensor, "b d i j"],
        pre_logits: bool = False,
    ) -> Float[Tensor, "b ..."]:
        """Logits from the last map, or with `pre_logits` what the last linear layer reads."""
        if self._head != "mlp" or not pre_logits:
            x = self.avgpool(x)
            return x if pre_logits else self.classifier(x)
        assert isinstance(self.classifier, nn.Sequential)
        return self.classifier[:-1](self.avgpool(x))


class _Grid(nn.AdaptiveAvgPool2d):
    """A map pooled to a grid, as one vector."""

    def forward(self, input: Float[Tensor, "b c h w"]) -> Float[Tensor, "b n"]:
        return super().forward(input).flatten(1)


def stage_info(
    features: Sequence[nn.Module], channels: Sequence[int], reductions: Sequence[int]
) -> list[dict[str, Any]]:
    """Timm's description of the feature maps that stand before each max-pool."""
    ends = [i - 1 for i, layer in enumerate(features) if isinstance(layer, nn.MaxPool2d)]
    return [
        {"num_chs": width, "reduction": reduction, "module": f"features.{end}"}
        for width, reduction, end in zip(channels, reductions, ends, strict=True)
    ]
