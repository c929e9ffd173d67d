"""Attention as convolution: the multi-head self-attention that computes a given convolution.

With P x P patches as tokens, each head attends to the one token at a fixed offset from its
query, for any image. Queries and keys are zero, and only relative scores select the offset: 0
at that offset and minus infinity elsewhere, so that the softmax is exactly one there. The
head's value map is the part of the kernel that reads that token.

Source: Cordonnier et al. (2020), On the relationship between self-attention and convolutional
layers, theorem 1; Li et al. (2021), Can vision transformers perform convolution?, theorem 1,
for patches.
"""

import math

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import conv2d, pad

from visprism.core.errors import InputError
from visprism.models.layers.patch_embed import check_divisible


class RelativeAttention(nn.Module):
    """Multi-head self-attention whose scores have a term for each relative position.

    The map is cut into tokens of P x P pixels, around which lie tokens of zeros. In head h,

        out_i = sum over j of softmax_j(q_i . k_j / sqrt(d) + S_h[place_j - place_i]) v_j

    over all tokens j within `reach` of token i, with v_j = W_h token_j; the sum over heads and
    a constant give the output's tokens, which are rearranged to a map. Offset 0 stands in the
    middle of S, and queries and keys are zero at first. Costs, for each head and
    pair of tokens within reach, a product of a token's width, and W_h of each token.
    """

    scores: Tensor

    def __init__(
        self,
        scores: Float[Tensor, "heads rows columns"],
        values: Float[Tensor, "heads out in"],
        constant: Float[Tensor, "out"],
        *,
        patch_size: int = 1,
    ) -> None:
        super().__init__()
        heads, _, width = values.shape
        self.patch_size, self.num_heads = patch_size, heads
        self.reach = scores.shape[1] // 2, scores.shape[2] // 2
        self.qk = nn.Linear(width, 2 * heads, bias=False, dtype=values.dtype)
        nn.init.zeros_(self.qk.weight)
        self.scores = nn.Parameter(scores.clone())
        self.value = nn.Parameter(values.clone())
        self.constant = nn.Parameter(constant.clone())

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b d h w"]:
        """The feature map of the tokens' outputs."""
        p, (up, left) = self.patch_size, self.reach
        channels = self.value.shape[-1] // p**2
        if x.ndim != 4 or x.shape[1] != channels:
            raise InputError(
                f"x must be a batch of feature maps of shape (B, {channels}, H, "
                f"W), got {tuple(x.shape)}"
            )
        check_divisible((x.shape[2], x.shape[3]), p)
        tokens = rearrange(x, "b c (h p) (w q) -> b h w (c p q)", p=p, q=p)
        around = pad(tokens, (0, 0, left, left, up, up))
        query, _ = self.qk(tokens).chunk(2, dim=-1)
        _, key = self.qk(around).chunk(2, dim=-1)
        height, width = 2 * up + 1, 2 * left + 1
        near = around.unfold(1, height, 1).unfold(2, width, 1)
        keys = key.unfold(1, height, 1).unfold(2, width, 1)
        scores = query[..., None, None] * keys + self.scores  # b h w heads rows columns
        weights = scores.flatten(4).softmax(-1)
        seen = torch.einsum("bhwgn,bhwcn->bhwgc", weights, near.flatten(4))
        out = torch.einsum("bhwgc,goc->bhwo", seen, self.value) + self.constant
        return rearrange(out, "b h w (o p q) -> b o (h p) (w q)", p=p, q=p)


def attention_from_convolution(conv: nn.Conv2d, *, patch_size: int = 1) -> RelativeAttention:
    """The self-attention that computes exactly what a convolution computes.

    A K x K convolution takes K^2 heads with one pixel a token, (2 ceil((K - 1) / 2P) + 1)^2
    heads with P x P pixels a token; a dilated one as many as there are offsets between the
    tokens that it joins. Beyond the image are zeros, for both. Between groups, values are zero.

    Costs the memory of heads x outputs x inputs of a token: P^4 times the kernel's channels for
    each head.

    Args:
        conv: with a stride of 1, an odd kernel, and zeros for half of it (`padding="same"`)
            around the image.
        patch_size: side of a token in pixels.

    Source: Cordonnier et al. (2020), theorem 1; Li et al. (2021), theorem 1.
    """
    _check(conv, patch_size)
    values = _responses(conv, conv.weight, patch_size)
    # By structure: a weight of the kernel may be 0.
    offsets = _responses(conv, torch.ones_like(conv.weight), patch_size).flatten(2).any(2)
    scores = values.new_full((int(offsets.sum()), *offsets.shape), -math.inf)
    rows, columns = offsets.nonzero(as_tuple=True)
    scores[torch.arange(len(scores)), rows, columns] = 0
    constant = values.new_zeros(conv.out_channels) if conv.bias is None else conv.bias.detach()
    return RelativeAttention(
        scores,
        values[offsets],
        constant.repeat_interleave(patch_size**2),
        patch_size=patch_size,
    )


def _responses(
    conv: nn.Conv2d, weight: Tensor, patch: int
) -> Float[Tensor, "rows columns out in"]:
    """What each number of a token adds to the numbers of another, by offset to the token read.

    These are the outputs of the convolution for each number of one token.
    """
    dilated = [d * (k // 2) for k, d in zip(conv.kernel_size, conv.dilation, strict=True)]
    up, left = (patch * math.ceil(reach / patch) for reach in dilated)
    inputs = conv.in_channels * patch**2
    tokens = torch.eye(inputs, dtype=torch.float64, device=weight.device)
    tokens = pad(tokens.view(inputs, -1, patch, patch), (left, left, up, up))
    kernel = weight.detach().double()  # in which a sum of one number and zeros is exact
    out = conv2d(tokens, kernel, None, 1, dilated, conv.dilation, conv.groups)
    by_place = rearrange(out, "n o (i p) (j q) -> i j (o p q) n", p=patch, q=patch)
    return by_place.flip(0, 1).to(weight)


def largest_difference(
    conv: nn.Conv2d, attention: RelativeAttention, images: Float[Tensor, "b c h w"]
) -> float:
    """The largest absolute difference between the two layers' outputs."""
    with torch.no_grad():
        return float((conv(images) - attention(images)).abs().max())


def _check(conv: nn.Conv2d, patch_size: int) -> None:
    """Require a convolution that keeps the grid and has a center."""
    kind = type(conv)
    if (kind.forward, kind._conv_forward) != (nn.Conv2d.forward, nn.Conv2d._conv_forward):
        raise InputError(
            "conv must compute what torch.nn.Conv2d computes from its weight, got a "
            f"{kind.__name__}. Copy the weight that it uses into a torch.nn.Conv2d."
        )
    sides = [(k, d) for k, d in zip(conv.kernel_size, conv.dilation, strict=True)]
    same = tuple(d * (k - 1) // 2 for k, d in sides)
    padding = same if conv.padding == "same" else conv.padding
    wrong = None
    if any(side % 2 == 0 for side in conv.kernel_size):
        wrong = f"a kernel of {'x'.join(map(str, conv.kernel_size))}"
    elif set(conv.stride) != {1}:
        wrong = f"a stride of {'x'.join(map(str, conv.stride))}"
    elif padding != same or (conv.padding_mode != "zeros" and any(same)):
        wrong = f"padding of {conv.padding} ({conv.padding_mode})"
    elif type(patch_size) is not int or patch_size < 1:
        wrong = f"patches of {patch_size} pixels"
    if wrong:
        raise InputError(
            "conv must have an odd kernel, stride 1 and zero padding of half "
            f"the kernel ({'x'.join(map(str, same))}), and patch_size must be a "
            f"positive integer, got {wrong}"
        )
