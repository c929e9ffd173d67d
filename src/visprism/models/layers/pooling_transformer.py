"""The network of PiTs: timm's, on images of any size and with a choice of heads."""

from typing import Any

from jaxtyping import Float
from timm.layers import resample_abs_pos_embed_nhwc
from timm.models._features import feature_take_indices
from timm.models.pit import PoolingVisionTransformer
from torch import Tensor, nn

from visprism.core.errors import InputError
from visprism.models.layers.heads import KeepsMLP


class PiT(KeepsMLP, PoolingVisionTransformer):
    """timm's PiT on images of any size, with a choice of heads.

    Its class token can have a position embedding. With another head there is no such token,
    and the logits come from the last map.
    """

    cls_token: nn.Parameter | None  # pyrefly: ignore (timm's always has one)
    cls_pos: nn.Parameter | None
    attn_pool: nn.Module | None

    @property
    def pooling(self) -> str:
        """How tokens become one vector, in timm's words."""
        if self.attn_pool is not None:
            return "map"
        return "token" if self.cls_token is not None else "avg"

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """Give the network a new classifier of the kind that it has, with random weights."""
        pool = None if global_pool == self.pooling else global_pool  # timm knows one name alone
        super().reset_classifier(num_classes, pool)

    def embedded(
        self, x: Float[Tensor, "b c h w"]
    ) -> tuple[Float[Tensor, "b d i j"], Float[Tensor, "b n d"]]:
        """The map of patches with their positions, and the class token, if there is one."""
        conv = self.patch_embed.conv
        check_strided_patches(tuple(x.shape[2:]), conv.kernel_size[0], conv.stride[0])
        x = self.patch_embed(x)
        grid = [x.shape[2], x.shape[3]]
        table = resample_abs_pos_embed_nhwc(self.pos_embed.permute(0, 2, 3, 1), grid)
        x = self.pos_drop(x + table.permute(0, 3, 1, 2))
        if self.cls_token is None:
            return x, _none(x)
        token = self.cls_token if self.cls_pos is None else self.cls_token + self.cls_pos
        return x, token.expand(len(x), -1, -1)

    def forward_features(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b n d"]:
        """What the head reads: the class token behind the last block, or all other tokens."""
        x, token = self.transformers(self.embedded(x))
        return self.norm(x.flatten(2).mT if self.cls_token is None else token)

    # pyrefly: ignore (timm's other arguments change nothing)
    def forward_intermediates(
        self,
        x: Float[Tensor, "b c h w"],
        indices: int | list[int] | None = None,
        intermediates_only: bool = False,
        **_: Any,
    ) -> Any:
        """The maps behind the stages `indices`, all if it is None."""
        chosen, _last = feature_take_indices(len(self.transformers), indices)
        x, token = self.embedded(x)
        maps = []
        for stage in self.transformers:
            x, token = stage((x, token))
            maps.append(x)
        maps = [one for place, one in enumerate(maps) if place in chosen]
        if intermediates_only:
            return maps
        return self.norm(x.flatten(2).mT if self.cls_token is None else token), maps

    def forward_head(
        self,
        x: Float[Tensor, "b n d"],
        pre_logits: bool = False,
    ) -> Float[Tensor, "b ..."]:
        """Logits from the tokens, or with `pre_logits` the vector before the classifier."""
        if self.global_pool and self.attn_pool is not None:
            x = self.attn_pool(x)
        elif self.global_pool:
            x = x.mean(1)  # of one, where that is the class token
        return x if pre_logits else self.head(x)

    def leave_token_out(self) -> None:
        """Take the class token away, and the map that widens it between stages."""
        self.register_parameter("cls_token", None)
        for stage in self.transformers:
            if stage.pool is not None:
                halved = _Halved(stage.get_submodule("pool.conv"))
                stage.register_module("pool", halved)


class _Halved(nn.Module):
    """timm's pooling between stages, where there is no class token."""

    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.conv = conv

    def forward(
        self,
        x: Float[Tensor, "b c h w"],
        _token: Float[Tensor, "b n c"],
    ) -> tuple[Float[Tensor, "b d i j"], Float[Tensor, "b n d"]]:
        x = self.conv(x)
        return x, _none(x)


def _none(x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b 0 c"]:
    """No token, of the channels of a map."""
    return x.new_empty(len(x), 0, x.shape[1])


def check_strided_patches(sides: tuple[int, ...], patch: int, stride: int) -> None:
    """Check that overlapping patches end where the image does."""
    if any(side < patch or (side - patch) % stride for side in sides):
        side = patch + max(0, round((max(sides) - patch) / stride)) * stride
        raise InputError(
            f"sides of images must be {patch} plus a multiple of {stride} "
            f"pixels (patches of {patch}x{patch} with stride {stride}), got "
            f"{'x'.join(map(str, sides))}. Use {side}x{side}, for example."
        )
