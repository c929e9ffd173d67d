"""The weights that a torch function of attention works with, from its arguments and result.

A fused attention never stores its weights; they are recomputed from its inputs.
"""

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import Any, cast

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from visprism.core.errors import InputError

# The weights, and what the operation gives with the same weights.
Weighing = tuple[Tensor, Callable[[Tensor], Any]]


def weighing(op: str, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> Weighing:
    """The weights of a call, and the result of the call as a function of its weights."""
    return _WEIGHTS.get(op, _softmax)(args, kwargs, out)


def _fused(args: Sequence[Any], kwargs: Mapping[str, Any], _out: Any) -> Weighing:
    """Weights of `torch.nn.functional.scaled_dot_product_attention`."""
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
    given = dict(zip(names, args, strict=False)) | dict(kwargs)
    query, key, value = (given[name] for name in names[:3])
    if given.get("enable_gqa"):  # several heads of queries share one of keys
        shared = query.shape[-3] // key.shape[-3]
        key, value = (t.repeat_interleave(shared, dim=-3) for t in (key, value))
    scale, mask = given.get("scale"), given.get("attn_mask")
    scores = (query * (query.shape[-1] ** -0.5 if scale is None else scale)) @ key.mT
    if given.get("is_causal"):
        mask = torch.ones_like(scores, dtype=torch.bool).tril()
    if mask is None:
        weights = scores.softmax(-1)
    else:
        boolean = mask.dtype == torch.bool
        scores = scores.masked_fill(~mask, -torch.inf) if boolean else scores + mask
        # A query that may attend to nothing gets nothing, as from the kernel.
        nothing = scores.amax(-1, keepdim=True) == -torch.inf
        weights = scores.softmax(-1).masked_fill(nothing, 0)
    return weights, lambda same: same @ value


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
