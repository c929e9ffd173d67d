"""ViTs with local attention: the "convolutional" ViT of Park and Kim (2022)."""

from dataclasses import dataclass
from functools import partial
from math import ceil

import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import pad, scaled_dot_product_attention

from visprism.core.errors import InputError
from visprism.models.layers.heads import check_head
from visprism.models.layers.window_attention import head_width
from visprism.models.zoo.vit import ViT, ViTOptions, build_vit, family_of, variants
from visprism.models.zoo_registry import MODELS

# Up to so many tokens every token is compared with all, most of them masked: the weights are
# of one window, which rollouts need, and tiles save at most 4% of a block (3 x 3) here.
_ALL_PAIRS = 400
_TILE = 8  # about the side of the squares of queries that share their keys, on larger grids


class LocalAttention(nn.Module):
    """Multi-head self-attention of each token with the k x k tokens around it.

    For a token at place i of the grid, in each head, with queries, keys and values q, k, v of d
    channels from one linear map of the input,

        out_i = sum over j near i of softmax_j(q_i . k_j / sqrt(d)) v_j

    and a linear map of all heads' `out` gives the output. Tokens outside the image are no keys:
    at a border there are fewer neighbors, and the softmax is over those. With a `kernel` of
    "global" (or None) every token is near, which is a ViT's attention. A `head_dim` of None
    shares `dim` among the heads.

    Costs two products of d multiply-accumulates for each pair of tokens on grids of up to 400
    tokens, and for each token and each of about (7 + k)^2 around it on larger ones.

    Source: Yang et al. (2019), Convolutional self-attention networks, in two dimensions; Park
    and Kim (2022), How do vision transformers work?, fig. 5.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        kernel: object = 3,
        head_dim: int | None = None,
        qkv_bias: bool = False,
        proj_drop: float = 0.0,
    ) -> None:
        super().__init__()
        kernel = None if kernel == "global" else kernel
        odd = isinstance(kernel, int) and kernel > 0 and kernel % 2 == 1
        if kernel is not None and not odd:
            raise InputError(
                f"kernel must be an odd number of tokens or 'global', got {kernel!r}"
            )
        width = num_heads * head_width(dim, num_heads, head_dim)
        self.num_heads, self.kernel = num_heads, kernel  # pyrefly: ignore (checked above)
        self.qkv = nn.Linear(dim, 3 * width, bias=qkv_bias)
        self.proj = nn.Linear(width, dim)
        self.proj_drop = nn.Dropout(proj_drop)

    def forward(
        self, x: Float[Tensor, "b h w c"], attn_mask: None = None, is_causal: bool = False
    ) -> Float[Tensor, "b h w c"]:
        """The output at each token, from the tokens around it."""
        height, width = x.shape[1:3]
        qkv = self.qkv(x)
        if self.kernel is None or height * width <= _ALL_PAIRS:
            out = self._among_all(qkv, height, width)
        else:
            out = self._by_tiles(qkv, self.kernel, height, width)
        return self.proj_drop(out)

    def _among_all(
        self, qkv: Float[Tensor, "b h w d"], height: int, width: int
    ) -> Float[Tensor, "b h w c"]:
        """Every token with all, of which those that are not near are masked."""
        # Thirds of the last axis: the backward pass writes their gradients side by side, and
        # gradients of an axis of three would be stacked and copied once more.
        q, k, v = (
            rearrange(x, "b h w (g d) -> b g (h w) d", g=self.num_heads)
            for x in qkv.chunk(3, dim=-1)
        )
        near = None
        if self.kernel is not None:
            rows, columns = (torch.arange(length)[None] for length in (height, width))
            near = _near((rows, rows), (columns, columns), self.kernel // 2)[0].to(q.device)
        out = scaled_dot_product_attention(q, k, v, attn_mask=near)
        return self.proj(rearrange(out, "b g (h w) d -> b h w (g d)", h=height))

    def _by_tiles(
        self, qkv: Float[Tensor, "b h w d"], kernel: int, height: int, width: int
    ) -> Float[Tensor, "b h w c"]:
        """The tokens of a tile with those in it and around it."""
        rows, columns = (_tiles(length, kernel // 2) for length in (height, width))
        padded = rows[0].numel(), columns[0].numel()
        queries, keys = _places(rows[0], columns[0]), _places(rows[1], columns[1], width)
        near = _near(rows, columns, kernel // 2)
        far = torch.zeros(near.shape, dtype=qkv.dtype).masked_fill(~near, -torch.inf)
        q, k, v = qkv.chunk(3, dim=-1)
        q = pad(q, (0, 0, 0, padded[1] - width, 0, padded[0] - height))
        q, k, v = (
            self._gather(x, places) for x, places in ((q, queries), (k, keys), (v, keys))
        )
        mask = far[:, None].repeat(len(qkv), 1, 1, 1).to(q.device)
        out = scaled_dot_product_attention(q, k, v, attn_mask=mask)
        # In the order of tiles, so that no second copy is kept for the backward pass.
        out = self.proj(rearrange(out, "(b t) g n d -> b (t n) (g d)", t=len(queries)))
        order = queries.flatten().argsort().view(padded)[:height, :width]
        out = out.index_select(1, order.flatten().to(out.device))
        return rearrange(out, "b (h w) c -> b h w c", h=height)

    def _gather(
        self, x: Float[Tensor, "b h w e"], places: Int[Tensor, "t n"]
    ) -> Float[Tensor, "bt g n d"]:
        """The tokens at the places of each tile, by head."""
        tokens = x.flatten(1, 2).index_select(1, places.flatten().to(x.device))
        return rearrange(
            tokens, "b (t n) (g d) -> (b t) g n d", t=len(places), g=self.num_heads
        )


def _tiles(
    length: int, reach: int
) -> tuple[Int[Tensor, "tiles side"], Int[Tensor, "tiles span"]]:
    """Along an axis: the places of the queries and of the keys of each tile.

    Queries beyond the axis fill the last tile up. Keys are places of the axis: those within
    reach of a tile, and where the axis ends before, as many on the other side.
    """
    side = ceil(length / max(1, round(length / _TILE)))
    queries = torch.arange(length + -length % side).view(-1, side)
    span = min(length, side + (2 * reach if len(queries) > 2 else reach))
    first = (queries[:, :1] - reach).clamp(0, length - span)
    return queries, first + torch.arange(span)


def _places(
    rows: Int[Tensor, "i p"], columns: Int[Tensor, "j q"], width: int | None = None
) -> Int[Tensor, "ij pq"]:
    """The numbers, row by row of the grid, of the tokens of every tile."""
    width = columns.numel() if width is None else width
    both = rows[:, None, :, None] * width + columns[None, :, None, :]
    return rearrange(both, "i j p q -> (i j) (p q)")


def _near(
    rows: tuple[Int[Tensor, "i p"], Int[Tensor, "i s"]],
    columns: tuple[Int[Tensor, "j q"], Int[Tensor, "j t"]],
    reach: int,
) -> Bool[Tensor, "ij pq st"]:
    """Which keys each query sees, for every tile.

    A query beyond the grid sees what the last one sees, so that no query sees nothing.
    """
    seen = []
    for queries, keys in (rows, columns):
        inside = torch.minimum(queries, keys.max())
        seen.append((keys[:, None, :] - inside[:, :, None]).abs() <= reach)
    both = seen[0][:, None, :, None, :, None] & seen[1][None, :, None, :, None, :]
    return rearrange(both, "i j p q s t -> (i j) (p q) (s t)")


class ConvVisionTransformer(ViT):
    """A ViT whose tokens keep the shape of the grid, as local attention requires."""

    def _pos_embed(self, x: Float[Tensor, "b h w c"]) -> Float[Tensor, "b h w c"]:
        return super()._pos_embed(x).unflatten(1, x.shape[1:3])

    def forward_features(
        self,
        x: Float[Tensor, "b c h w"],
        attn_mask: Bool[Tensor, "n n"] | None = None,
        is_causal: bool = False,
    ) -> Float[Tensor, "b n d"]:
        """The tokens of the last block as a sequence."""
        return super().forward_features(x, attn_mask, is_causal).flatten(1, 2)


@dataclass(frozen=True, kw_only=True)
class ConvViTOptions(ViTOptions):
    """The options of ViTs with local attention; see `ViTOptions`."""

    head: str = "gap"
    kernel: object = 3  # an odd integer, or "global" or None


@family_of(ConvViTOptions)
def conv_vit(width: int, heads: int, options: ConvViTOptions) -> ConvVisionTransformer:
    """A ViT in which each token attends to the `kernel` x `kernel` tokens around it.

    There is no class token, since it would have no position on the grid. `kernel` is the side
    of the neighborhood in tokens, odd; "global" or None: the full grid.

    Source: Park and Kim (2022), How do vision transformers work?, sec. 2 and fig. 5; Yang et
    al. (2019), Convolutional self-attention networks.
    """
    check_head(options.head)
    attention = partial(
        LocalAttention,
        width,
        heads if options.num_heads is None else options.num_heads,
        kernel=options.kernel,
        head_dim=options.head_dim,
        qkv_bias=options.qkv_bias,
        proj_drop=options.mc_dropout,
    )
    kind = ConvVisionTransformer
    return build_vit(kind, width, heads, options, attention=attention, weight_init="skip")


MODELS.register_family(conv_vit, variants("conv_vit", 2), (32,))
MODELS.register_family(conv_vit, variants("conv_vit", 16), (224,))
MODELS.register_family(
    conv_vit,
    {
        "conv_vit_pico_patch4": (
            "ConvViT-Pico/4 (0.2 million parameters)",
            {"width": 64, "heads": 4, "depth": 4, "patch_size": 4, "num_classes": 10},
        )
    },
    (32,),
)
