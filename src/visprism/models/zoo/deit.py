"""DeiTs (Touvron et al. 2021): ViTs with a distillation token, timm's own."""

from typing import Any

from jaxtyping import Float
from timm.layers import trunc_normal_
from timm.models.deit import VisionTransformerDistilled
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from visprism.models.layers.classifier import alike, refuse_pooling
from visprism.models.layers.heads import classifier_of
from visprism.models.layers.vision_transformer import ViT, assembled
from visprism.models.zoo.vit import variants
from visprism.models.zoo_registry import MODELS


class DeiT(VisionTransformerDistilled):
    """timm's DeiT, whose logits come from its two tokens alone."""

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """Give the network two new classifiers.

        Raises:
            InputError: if another pooling than of the tokens is asked for.
        """
        refuse_pooling(self, num_classes, global_pool, "token")
        super().reset_classifier(num_classes)


class PooledDeiT(ViT):
    """A DeiT without its two tokens: both classifiers read one vector, pooled from all patches.

    Source: Graham et al. (2021), LeViT, sec. 4.2, "No classification token".
    """

    def __init__(self, **arguments: Any) -> None:  # noqa: ANN401 (as timm takes them)
        super().__init__(**arguments)
        self.head_dist: nn.Module = self._second("gap", self.num_classes)

    def _second(self, head: str, num_classes: int) -> nn.Module:
        classifier = classifier_of(head, self.embed_dim, num_classes)
        if isinstance(classifier, nn.Linear):
            trunc_normal_(classifier.weight, std=0.02)
            nn.init.zeros_(classifier.bias)
        return alike(classifier, self)

    def give_mlp(self, name: str, num_classes: int) -> None:
        """Make both classifiers VGG's MLP, now and at each reset."""
        super().give_mlp(name, num_classes)
        self.head_dist = self._second("gap_mlp", num_classes)

    # pyrefly: ignore (timm's DeiT gives two as well)
    def get_classifier(self) -> tuple[nn.Module, nn.Module]:
        """The classifier for the targets, and the one for the teacher's predictions."""
        return self.head, self.head_dist

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """Give the network two new classifiers of the kind that it has."""
        self.head_dist = self._second("gap", num_classes)
        super().reset_classifier(num_classes, global_pool)

    # pyrefly: ignore (as above)
    def forward_head(
        self,
        x: Float[Tensor, "b n d"],
        pre_logits: bool = False,  # noqa: FBT001, FBT002 (timm's contract)
    ) -> Float[Tensor, "b ..."] | tuple[Float[Tensor, "b k"], Float[Tensor, "b k"]]:
        """The logits of both classifiers in training mode, otherwise their mean."""
        x = super().forward_head(x, pre_logits=True)
        if pre_logits:
            return x
        of_class, of_teacher = self.head(x), self.head_dist(x)
        return (of_class, of_teacher) if self.training else (of_class + of_teacher) / 2


def deit(
    width: int,
    heads: int,
    *,
    img_size: int = 224,
    patch_size: int = 16,
    in_chans: int = 3,
    num_classes: int = 1000,
    depth: int = 12,
    num_heads: int | None = None,
    head_dim: int | None = None,
    qkv_bias: bool = True,
    head: str = "token",
    drop_path_rate: float = 0.0,
    mc_dropout: float = 0.0,
) -> VisionTransformer:
    """A ViT with a second token, which learns from a teacher, and a second classifier.

    In training mode it gives two logits, those of the class token (for the targets) and those
    of the distillation token (for the teacher's predictions); in evaluation mode their mean.

    Args:
        width: channels of a token.
        heads: of each attention, if `num_heads` does not say.
        img_size: side of the images that the table of positions is made for; images of other
            sizes get it by bicubic interpolation.
        patch_size: side of a patch in pixels.
        in_chans: channels of an image.
        num_classes: number of logits.
        depth: number of blocks.
        num_heads: of each attention.
        head_dim: channels of a head, whatever the width; by default the width is shared.
        qkv_bias: whether queries, keys and values have a constant of their own.
        head: what the two logits come from: each from its token; or, without tokens, both from
            the mean of all patches, from that each through VGG's MLP, or from what one learned
            query finds.
        drop_path_rate: of the last block (stochastic depth); it grows linearly with depth.
        mc_dropout: rate of dropout behind the positions and every linear map of a block.

    Raises:
        InputError: if patches do not divide the image, heads do not fit the width, or there is
            no such head.

    Source: Touvron et al. (2021), Training data-efficient image transformers & distillation
    through attention, sec. 4 and table 1; without tokens: Graham et al. (2021), LeViT: a vision
    transformer in ConvNet's clothing for faster inference, sec. 4.2.
    """
    model = assembled(
        DeiT if head == "token" else PooledDeiT,
        width,
        heads,
        img_size=img_size,
        patch_size=patch_size,
        in_chans=in_chans,
        num_classes=num_classes,
        depth=depth,
        num_heads=num_heads,
        head_dim=head_dim,
        qkv_bias=qkv_bias,
        head=head,
        drop_path_rate=drop_path_rate,
        mc_dropout=mc_dropout,
    )
    if isinstance(model, DeiT):
        model.set_distilled_training(True)
    return model


MODELS.register_family(deit, variants("deit", 2), (32,))
MODELS.register_family(deit, variants("deit", 16), (224,))
