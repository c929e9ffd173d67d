"""The weights of every attention in a forward pass.

A fused attention never stores its weights; they are recomputed from its inputs.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import signature
from typing import Any, TypeVar, cast

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from visprism.anatomy.blocks.anatomy import Anatomy
from visprism.anatomy.blocks.attention import Attention, Weights, attentions
from visprism.anatomy.run.interception import Call, fixed_image_size, intercept
from visprism.core.arguments import check_arguments
from visprism.core.errors import InputError

T = TypeVar("T")


@check_arguments
@contextmanager
def attend(
    anatomy: Anatomy,
    keep: Callable[[Weights], T],
    *,
    only: Iterable[Attention] | None = None,
    differentiable: bool = False,
) -> Iterator[dict[str, T]]:
    """Collect something of each attention's weights of the latest forward pass, by its name.

    Weights are softmax(q kT scale + bias): of each query over its keys they add up to 1.

    Args:
        anatomy: of the model that will run.
        keep: applied to the weights at once, inside the forward pass; it must
            return new memory.
        only: attentions to collect; by default all of `attentions`.
        differentiable: compute the model's output from these weights, so that it can be
            differentiated with respect to them.

    Yields:
        A dictionary that each forward pass fills.

    Raises:
        InputError: if there is no attention; on the forward pass, if the images have another
            size than the model was dissected with.
    """
    watched = attentions(anatomy) if only is None else tuple(only)
    if not watched:
        raise InputError(
            "the model must have an attention with a softmax over positions of "
            f"the image, and {type(anatomy.model).__name__} has none. Choose a "
            "model such as timm:vit_tiny_patch16_224."
        )
    collected: dict[str, T] = {}

    def reading(attention: Attention) -> Call:
        def read(args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> Any:  # noqa: ANN401
            op = anatomy.graph.nodes[attention.node].op
            weights, anew = _WEIGHTS.get(op, _softmax)(args, kwargs, out)
            images = _images(attention, weights)
            values = attention.geometry.weights(weights, images)
            collected[attention.name] = keep(Weights(attention, values))
            return (
                anew(attention.geometry.tensor(values, weights.shape))
                if differentiable
                else None
            )

        return read

    calls = {attention.node: reading(attention) for attention in watched}
    with fixed_image_size(anatomy), intercept(anatomy, reads={}, changes={}, calls=calls):
        yield collected


@contextmanager
def ablate_head(anatomy: Anatomy, attention: Attention, head: int) -> Iterator[None]:
    """Inside, one head of an attention contributes nothing: all its weights are 0.

    Args:
        anatomy: of the model that will run.
        attention: of this anatomy.
        head: its number, from 1.

    Raises:
        InputError: if there is no such head, or the attention is one operation together with
            what follows it, as `nn.MultiheadAttention` is.
    """
    op = anatomy.graph.nodes[attention.node].op
    heads = attention.geometry.heads
    if not 1 <= head <= heads:
        raise InputError(
            f"head must be between 1 and {heads}, the number of heads of {attention.name}, got "
            f"{head}"
        )
    if op == "multi_head_attention_forward":
        raise InputError(
            f"{attention.name} must expose its heads, got an nn.MultiheadAttention, which "
            "computes heads and projection in one operation. Ablate the block instead."
        )

    def silence(args: Sequence[Any], kwargs: Mapping[str, Any], out: Any) -> Any:  # noqa: ANN401
        weights, anew = _WEIGHTS.get(op, _softmax)(args, kwargs, out)
        values = attention.geometry.weights(weights, _images(attention, weights)).clone()
        values[:, :, head - 1] = 0
        return anew(attention.geometry.tensor(values, weights.shape))

    calls = {attention.node: silence}
    with fixed_image_size(anatomy), intercept(anatomy, reads={}, changes={}, calls=calls):
        yield


def _images(attention: Attention, weights: Tensor) -> int:
    """Number of images in a batch, from the size of its weights."""
    rows = weights.shape[:-2].numel()
    return rows // (len(attention.geometry.queries.index) * attention.geometry.heads)


# The weights, and what the operation gives with the same weights.
Weighing = tuple[Tensor, Callable[[Tensor], Any]]


def _fused(args: Sequence[Any], kwargs: Mapping[str, Any], _out: Any) -> Weighing:  # noqa: ANN401
    """Of `torch.nn.functional.scaled_dot_product_attention`."""
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
    given = dict(zip(names, args, strict=False)) | dict(kwargs)
    query, key, value = given["query"], given["key"], given["value"]
    if given.get("enable_gqa"):  # several heads of queries share one of keys
        times = query.shape[-3] // key.shape[-3]
        key, value = (x.repeat_interleave(times, dim=-3) for x in (key, value))
    scale, mask = given.get("scale"), given.get("attn_mask")
    scores = (query * (query.shape[-1] ** -0.5 if scale is None else scale)) @ key.mT
    if given.get("is_causal"):
        mask = torch.ones_like(scores, dtype=torch.bool).tril()
    if mask is not None and mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask, -torch.inf)
    elif mask is not None:
        scores = scores + mask
    weights = scores.softmax(-1)
    if mask is not None:  # a query that may attend to nothing gets nothing, as from the kernel
        weights = weights.masked_fill((scores == -torch.inf).all(-1, keepdim=True), 0)
    return weights, lambda same: same @ value


def _multi_head(args: Sequence[Any], kwargs: Mapping[str, Any], _out: Any) -> Weighing:  # noqa: ANN401
    """Of `torch.nn.functional.multi_head_attention_forward`."""
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
        out = functional.linear(
            _heads_joined(weights @ _values_by_head(given)),
            given["out_proj_weight"],
            given["out_proj_bias"],
        )
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


def _heads_joined(mixed: Float[Tensor, "b heads queries _"]) -> Float[Tensor, "queries b _"]:
    return rearrange(mixed, "b h queries d -> queries b (h d)")


def _softmax(args: Sequence[Any], kwargs: Mapping[str, Any], out: Tensor) -> Weighing:
    """Of a softmax: the model has the weights in memory."""
    axis = kwargs.get("dim", args[1] if len(args) > 1 else -1)
    return out.movedim(axis, -1), lambda same: same.movedim(-1, axis)


_WEIGHTS: dict[str, Callable[..., Weighing]] = {
    "scaled_dot_product_attention": _fused,
    "multi_head_attention_forward": _multi_head,
}
