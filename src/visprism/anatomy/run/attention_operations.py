"""The weights that a torch function of attention works with, from its arguments and result.

A fused attention never stores its weights; they are recomputed from its inputs.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from inspect import signature
from typing import Any, cast

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from visprism.anatomy.blocks.attention import Attention
from visprism.core.errors import InputError

# The weights, and what the operation gives with the same weights.
Weighing = tuple[Tensor, Callable[[Tensor], Any]]

# Bytes of weights that are worked on at a time: a part of the cache of one core, as what is
# computed from them needs as much again. On other devices it only bounds the memory.
_PER_CORE = 2**20
_ELSEWHERE = 2**28


def weighing(op: str, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> Weighing:
    """The weights of a call, and the result of the call as a function of its weights."""
    return _WEIGHTS.get(op, _softmax)(args, kwargs, out)


def number_of_images(attention: Attention, leading: torch.Size) -> int:
    """Number of images in a batch, from the leading axes (..., heads) of its weights."""
    return leading.numel() // (len(attention.geometry.queries.index) * attention.geometry.heads)


def weights_of_few_images(
    attention: Attention, op: str, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any
) -> Iterator[Float[Tensor, "few windows heads queries keys"]]:
    """The weights of consecutive images, of so many at a time as fit into the cache.

    A fused attention's weights are computed only here, so that they never lie in memory for all
    images. It needs images to be the first axis; other layouts are computed at once.
    """
    geometry = attention.geometry
    if op == "scaled_dot_product_attention" and geometry.axes[0][0] == "images":
        images = number_of_images(attention, out.shape[:-2])
        given = _given_to_fused(args, kwargs)
        sliced = [n for n in ("query", "key", "attn_mask") if _has_rows(given.get(n), out)]
        rows = out.shape[0] // images
        for start, stop in _ranges(attention, images, out):
            few = {name: given[name][rows * start : rows * stop] for name in sliced}
            yield geometry.weights(_fused_weights(given | few), stop - start)
        return
    weights, _ = weighing(op, args, kwargs, out)
    images = number_of_images(attention, weights.shape[:-2])
    values = geometry.weights(weights, images)
    for start, stop in _ranges(attention, images, values):
        yield values[start:stop]


def _ranges(attention: Attention, images: int, like: Tensor) -> Iterator[tuple[int, int]]:
    """First image, and the one after the last, of each part of a batch."""
    geometry = attention.geometry
    windows, queries = geometry.queries.index.shape
    keys = geometry.keys.index.shape[1]
    numbers = windows * geometry.heads * queries * keys
    size = _PER_CORE * torch.get_num_threads() if like.is_cpu else _ELSEWHERE
    few = max(1, size // (numbers * max(4, like.element_size())))
    for start in range(0, images, few):
        yield start, min(start + few, images)


def _has_rows(x: Tensor | None, out: Tensor) -> bool:
    """Whether the first axis is the output's; else all images have the same values."""
    return x is not None and x.ndim == out.ndim and x.shape[0] == out.shape[0] > 1


def _given_to_fused(args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of `torch.nn.functional.scaled_dot_product_attention`, by name."""
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
    return dict(zip(names, args, strict=False)) | dict(kwargs)


def _fused_weights(given: Mapping[str, Any]) -> Float[Tensor, "... queries keys"]:
    """Weights of `torch.nn.functional.scaled_dot_product_attention`."""
    query, key = given["query"], given["key"]
    if given.get("enable_gqa"):  # several heads of queries share one of keys
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], dim=-3)
    scale, mask = given.get("scale"), given.get("attn_mask")
    scores = (query * (query.shape[-1] ** -0.5 if scale is None else scale)) @ key.mT
    if given.get("is_causal"):
        mask = torch.ones_like(scores, dtype=torch.bool).tril()
    if mask is None:
        return scores.softmax(-1)
    if mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask, -torch.inf)
    else:
        scores = scores + mask
    # A query that may attend to nothing gets nothing, as from the kernel.
    return scores.softmax(-1).masked_fill(scores.amax(-1, keepdim=True) == -torch.inf, 0)


def _fused(args: Sequence[Any], kwargs: Mapping[str, Any], _out: Any) -> Weighing:
    """Weights of `torch.nn.functional.scaled_dot_product_attention`."""
    given = _given_to_fused(args, kwargs)

    def same(weights: Tensor) -> Tensor:
        value = given["value"]
        if given.get("enable_gqa"):
            value = value.repeat_interleave(weights.shape[-3] // value.shape[-3], dim=-3)
        return weights @ value

    return _fused_weights(given), same


def _multi_head(args: Sequence[Any], kwargs: Mapping[str, Any], _out: Any) -> Weighing:
    """Weights of `torch.nn.functional.multi_head_attention_forward`."""
    operation = functional.multi_head_attention_forward
    given = dict(zip(signature(operation).parameters, args, strict=False)) | dict(kwargs)
    settings: dict[str, Any] = {"need_weights": True, "average_attn_weights": False}
    _, weights = operation(**(given | settings))

    def same(weights: Tensor) -> tuple[Tensor, Tensor | None]:
        if given["bias_v"] is not None or given["add_zero_attn"]:
            raise InputError(
                "the output of nn.MultiheadAttention must be a function of its weights and "
                "values, got add_bias_kv or add_zero_attn"
            )
        joined = rearrange(weights @ _values_by_head(given), "b h q d -> q b (h d)")
        out = functional.linear(joined, given["out_proj_weight"], given["out_proj_bias"])
        if not given.get("need_weights", True):
            return out, None
        return out, weights.mean(1) if given.get("average_attn_weights", True) else weights

    return cast(Tensor, weights), same


def _values_by_head(given: Mapping[str, Any]) -> Float[Tensor, "b heads keys d"]:
    """The projected values of `multi_head_attention_forward`, whose axes are (keys, b, d)."""
    separate, bias = given.get("use_separate_proj_weight"), given["in_proj_bias"]
    weight = given["v_proj_weight"] if separate else given["in_proj_weight"].chunk(3)[2]
    bias = None if bias is None else bias.chunk(3)[2]
    values = functional.linear(given["value"], weight, bias)
    return rearrange(values, "keys b (h d) -> b h keys d", h=given["num_heads"])


def _softmax(args: Sequence[Any], kwargs: Mapping[str, Any], out: Tensor) -> Weighing:
    """Weights of a softmax: the model has them in memory."""
    axis = kwargs.get("dim", args[1] if len(args) > 1 else -1)
    return out.movedim(axis, -1), lambda same: same.movedim(-1, axis)


_WEIGHTS: dict[str, Callable[..., Weighing]] = {
    "scaled_dot_product_attention": _fused,
    "multi_head_attention_forward": _multi_head,
}
