"""Backward operations on gradients that are zero outside of a box; see `box_gradient`."""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from visprism.measure.features.box_gradient import RULES, BoxGradient, Rule

_aten = torch.ops.aten


def rule(*operations: Any) -> Callable[[Rule], Rule]:
    """Register a rule for these operations."""

    def register(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(operations, rule))
        return rule

    return register


# Shapes.


@rule(_aten.detach.default, _aten.alias.default, _aten.clone.default)
def _same(_: Any, g: BoxGradient, **__: Any) -> BoxGradient:
    return BoxGradient(g.inside, g.start, g.full_shape, g.shape)


@rule(_aten.view.default, _aten._unsafe_view.default, _aten.reshape.default)
def _view(_: Any, g: BoxGradient, shape: Sequence[int]) -> BoxGradient:
    remaining = g.numel() // -prod(shape) if -1 in shape and g.numel() else 0
    return g.viewed([remaining if s == -1 else s for s in shape])


@rule(_aten.permute.default)
def _permute(_: Any, g: BoxGradient, axes: Sequence[int]) -> BoxGradient:
    g = g.settled()
    start, size = ([s[a] for a in axes] for s in (g.start, g.full_shape))
    return BoxGradient(g.inside.permute(*axes), start, size)


@rule(_aten.transpose.int)
def _transpose(func: Any, g: BoxGradient, a: int, b: int) -> BoxGradient:
    axes = list(range(g.ndim))
    axes[a], axes[b] = axes[b], axes[a]
    return _permute(func, g, axes)


@rule(_aten.t.default)
def _t(func: Any, g: BoxGradient) -> BoxGradient:
    return _permute(func, g, range(g.ndim)[::-1])


@rule(_aten.unsqueeze.default)
def _unsqueeze(_: Any, g: BoxGradient, axis: int) -> BoxGradient:
    shape = list(g.shape)
    shape.insert(axis % (g.ndim + 1), 1)
    return g.viewed(shape)


@rule(_aten.slice.Tensor)
def _slice(
    _: Any,
    g: BoxGradient,
    axis: int = 0,
    first: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Any:
    g = g.settled()
    if g.inside.shape[axis] != g.shape[axis]:
        return NotImplemented
    index = [slice(None)] * g.ndim
    index[axis] = slice(first, end, step)
    values = g.inside[tuple(index)]
    shape = list(g.shape)
    shape[axis] = values.shape[axis]
    return BoxGradient(values, g.start, shape)


@rule(_aten.slice_backward.default)
def _slice_backward(
    _: Any,
    g: BoxGradient,
    size: Sequence[int],
    axis: int,
    first: int,
    _end: int,
    step: int,
) -> Any:
    g = g.settled()
    if step != 1:
        return NotImplemented
    start = list(g.start)
    start[axis] += min(max(first + size[axis] if first < 0 else first, 0), size[axis])
    return BoxGradient(g.inside, start, size)


# Sums and products with tensors.


@rule(_aten.add.Tensor)
def _add(_: Any, a: Any, b: Any, alpha: float = 1) -> Any:
    if not (isinstance(a, BoxGradient) and isinstance(b, BoxGradient)):
        return NotImplemented
    a, b = a.settled(), b.settled()
    if alpha != 1 or a.shape != b.shape:
        return NotImplemented
    if a.start == b.start and a.inside.shape == b.inside.shape:
        return BoxGradient(a.inside + b.inside, a.start, a.full_shape)
    ends = [max(i.stop, j.stop) for i, j in zip(a.box(), b.box(), strict=True)]
    start = [min(i, j) for i, j in zip(a.start, b.start, strict=True)]
    extent = [e - s for e, s in zip(ends, start, strict=True)]
    if list(a.inside.shape) != extent:
        total = a.inside.new_zeros(extent)
        total[_within(a, start)] = a.inside
    else:
        total = a.inside.clone()
    total[_within(b, start)] += b.inside
    return BoxGradient(total, start, a.full_shape)


def _within(g: BoxGradient, start: Sequence[int]) -> tuple[slice, ...]:
    """The box as an index of a tensor that begins at `start`."""
    return tuple(slice(i.start - s, i.stop - s) for i, s in zip(g.box(), start, strict=True))


def cut(x: Any, g: BoxGradient) -> Any:
    """A tensor that is broadcast with the gradient, inside of the box."""
    if not isinstance(x, Tensor):
        return x
    box = g.box()[g.ndim - x.ndim :]
    return x[tuple(b if n > 1 else slice(None) for b, n in zip(box, x.shape, strict=True))]


@rule(
    _aten.mul.Tensor,
    _aten.mul.Scalar,
    _aten.div.Tensor,
    _aten.div.Scalar,
    _aten.neg.default,
    _aten.threshold_backward.default,
    _aten.gelu_backward.default,
    _aten.silu_backward.default,
    _aten.sigmoid_backward.default,
    _aten.tanh_backward.default,
    _aten.hardswish_backward.default,
    _aten.hardsigmoid_backward.default,
    _aten.hardtanh_backward.default,
    _aten.leaky_relu_backward.default,
    _aten.elu_backward.default,
)
def _pointwise(func: Any, g: Any, *others: Any, **options: Any) -> Any:
    """An operation at each place alone, linear in the gradient."""
    if func is _aten.mul.Tensor and not isinstance(g, BoxGradient):
        g, others = others[0], (g,)
    if not isinstance(g, BoxGradient) or any(isinstance(x, BoxGradient) for x in others):
        return NotImplemented
    g = g.settled()
    tensors = [x for x in others if isinstance(x, Tensor)]
    if any(torch.broadcast_shapes(x.shape, g.shape) != g.shape for x in tensors):
        return NotImplemented
    values = func(g.inside, *(cut(x, g) for x in others), **options)
    return BoxGradient(values, g.start, g.full_shape)


@rule(_aten.mm.default)
def _mm(_: Any, g: Any, matrix: Any) -> Any:
    if not isinstance(g, BoxGradient) or isinstance(matrix, BoxGradient):
        return NotImplemented
    if g.full_shape[-1] != g.shape[1]:
        return NotImplemented
    box = g.box()[-1]
    values = (g.inside.reshape(-1, g.inside.shape[-1]) @ matrix[box]).view(
        *g.inside.shape[:-1], matrix.shape[1]
    )
    size = (*g.full_shape[:-1], matrix.shape[1])
    return BoxGradient(values, (*g.start[:-1], 0), size, (g.shape[0], matrix.shape[1]))


# Normalization.


@rule(_aten.native_batch_norm_backward.default)
def _batch_norm_backward(
    _: Any,
    g: Any,
    _x: Tensor,
    weight: Tensor | None,
    _mean: Tensor | None,
    variance: Tensor | None,
    _saved_mean: Tensor | None,
    _saved_inverse: Tensor | None,
    train: bool,
    eps: float,
    mask: Sequence[bool],
) -> Any:
    if train or not of_input_alone(mask) or not isinstance(g, BoxGradient):
        return NotImplemented
    g = g.settled()
    assert variance is not None  # in evaluation
    scale = (variance + eps).rsqrt()
    scale = scale if weight is None else scale * weight
    scale = scale[g.box()[1]].view(-1, *[1] * (g.ndim - 2))
    return BoxGradient(g.inside * scale.to(g.inside), g.start, g.full_shape), None, None


def of_input_alone(mask: Sequence[bool]) -> bool:
    """Whether gradients of parameters are not asked for."""
    return list(mask) == [True, False, False]


@rule(_aten.native_layer_norm_backward.default)
def _layer_norm_backward(
    func: Any,
    g: Any,
    x: Tensor,
    normalized: Sequence[int],
    mean: Tensor,
    inverse: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mask: Sequence[bool],
) -> Any:
    if not of_input_alone(mask) or not isinstance(g, BoxGradient):
        return NotImplemented
    g = g.settled()
    leading = g.ndim - len(normalized)
    if g.inside.shape[leading:] != g.full_shape[leading:]:
        return NotImplemented
    # The operation reads memory in order.
    parts = [cut(tensor, g).contiguous() for tensor in (x, mean, inverse)]
    gradient, *_ = func(
        g.inside.contiguous(), parts[0], normalized, *parts[1:], weight, bias, list(mask)
    )
    return BoxGradient(gradient, g.start, g.full_shape), None, None


# Attention.


@rule(_aten._scaled_dot_product_flash_attention_for_cpu_backward.default)
def _attention_backward(
    _: Any,
    g: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    _logsumexp: Tensor,
    dropout: float,
    causal: bool,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> Any:
    if not isinstance(g, BoxGradient) or dropout or causal:
        return NotImplemented
    g = g.settled()
    if any(
        n != s
        for i, (n, s) in enumerate(zip(g.inside.shape, g.full_shape, strict=True))
        if i != 2
    ):
        return NotImplemented
    if g.is_full:  # the fused operation is as fast and needs less memory
        return NotImplemented
    scale = query.shape[3] ** -0.5 if scale is None else scale
    rows = g.box()[2]

    scores = query[:, :, rows] @ key.transpose(2, 3) * scale
    if attn_mask is not None:
        mask = attn_mask if attn_mask.shape[-2] == 1 else attn_mask[..., rows, :]
        scores = scores + mask
    p = scores.softmax(-1)
    to_value = p.transpose(2, 3) @ g.inside
    to_weights = g.inside @ value.transpose(2, 3)
    mean = (g.inside * out[:, :, rows]).sum(-1, keepdim=True)
    to_scores = (to_weights - mean).mul_(p).mul_(scale)
    to_query = to_scores @ key
    to_key = to_scores.transpose(2, 3) @ query[:, :, rows]
    nothing = [0] * 4
    return (
        BoxGradient(to_query, g.start, g.full_shape),
        BoxGradient(to_key, nothing, key.shape),
        BoxGradient(to_value, nothing, value.shape),
    )
