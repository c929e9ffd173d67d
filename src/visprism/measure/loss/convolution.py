"""Convolutions whose second derivatives are convolutions with kernels of the same size.

A Hessian-vector product needs, besides the two convolutions of a backward pass, four of the
same arithmetic. Torch computes the one that leads to the kernel with a feature map in place of
the kernel, which takes several times as long on a CPU as the gradient of a kernel, although
both are the same sums (torch 2.15).
"""

from collections.abc import Sequence
from operator import index
from typing import Any, SupportsIndex

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.graph import Node
from torch.nn import functional

Size = SupportsIndex | Sequence[SupportsIndex]  # an integer of Python, NumPy or torch
Options = tuple[list[int], list[int], list[int], bool, list[int], int]

_convolution = torch.ops.aten.convolution.default
_backward = torch.ops.aten.convolution_backward.default

CONVOLUTIONS = (functional.conv1d, functional.conv2d, functional.conv3d)


def convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size = 0,
    dilation: Size = 1,
    groups: int = 1,
) -> Tensor:
    """`torch.nn.functional.conv2d` of a batch, or that of one or three dimensions."""
    sizes = [_sizes(size, weight.ndim - 2) for size in (stride, padding, dilation)]
    options = (*sizes, False, [0] * (weight.ndim - 2), groups)
    return _Convolution.apply(_not_leaf(x), _not_leaf(weight), bias, options)


def is_plain_convolution(x: Tensor, weight: Tensor, padding: object) -> bool:
    """Whether `convolution` can compute it.

    A batch of real numbers, padding in pixels, no automatic casts.
    """
    batch = x.ndim == weight.ndim and not isinstance(padding, str)
    derived = x.requires_grad or weight.requires_grad
    casts = torch.is_autocast_enabled(x.device.type)
    return batch and derived and x.is_floating_point() and not casts


def _sizes(size: Size, dimensions: int) -> list[int]:
    sizes = [index(n) for n in size] if isinstance(size, Sequence) else [index(size)]
    return sizes * dimensions if len(sizes) == 1 else sizes


class _Convolution(Function):
    """w * x + b."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, options: Options):
        ctx.save_for_backward(x, weight)
        ctx.options = options
        return _convolution(x, weight, bias, *options)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        needs = tuple(ctx.needs_input_grad[:3])
        grad = _not_leaf(*grads)
        return *_Derivative.apply(grad, *ctx.saved_tensors, ctx.options, needs), None


class _Derivative(Function):
    """Gradients with respect to x, w and b, as functions of g, x and w."""

    @staticmethod
    def forward(
        ctx: Any,
        grad: Tensor,
        x: Tensor,
        weight: Tensor,
        options: Options,
        needs: tuple[bool, bool, bool],
    ):
        ctx.save_for_backward(grad, x, weight)
        ctx.set_materialize_grads(False)
        ctx.options = options
        return tuple(_backward(grad, x, weight, [len(weight)], *options, needs))

    @staticmethod
    def backward(ctx: Any, *vectors: Tensor | None) -> tuple[Tensor | None, ...]:
        v, v_weight, v_bias = vectors
        grad, x, weight = ctx.saved_tensors
        needs_grad, needs_x, needs_weight = map(_is_requested, ctx.next_functions[:3])
        to_grad = to_x = to_weight = None
        if needs_grad:
            to_grad = _tangent(x, v, weight, v_weight, v_bias, ctx.options)
        if needs_x and v_weight is not None:
            only_x = (True, False, False)
            to_x = _backward(grad, x, v_weight, None, *ctx.options, only_x)[0]
        if needs_weight and v is not None:
            only_weight = (False, True, False)
            to_weight = _backward(grad, v, weight, None, *ctx.options, only_weight)[1]
        return to_grad, to_x, to_weight, None, None


def _not_leaf(tensor: Tensor) -> Tensor:
    """The tensor, as the result of an operation: see `_is_requested`."""
    return tensor.view_as(tensor) if tensor.is_leaf and tensor.requires_grad else tensor


def _is_requested(edge: tuple[Node | None, int]) -> bool:
    """Whether the present backward pass goes on to this operation.

    `needs_input_grad` says whether any pass could. The product with J in a Gauss-Newton matrix
    needs `to_grad` alone, half of the arithmetic. Torch cannot tell it of a leaf.
    """
    node, _ = edge
    return node is not None and torch._C._will_engine_execute_node(node)


def _tangent(
    x: Tensor,
    v: Tensor | None,
    weight: Tensor,
    v_weight: Tensor | None,
    v_bias: Tensor | None,
    options: Options,
) -> Tensor | None:
    """Derivative of w * x + b in the direction of v."""
    terms = [(v, weight), (x, v_weight)]
    total = None
    for argument, kernel in terms:
        if argument is not None and kernel is not None:
            term = _convolution(
                argument, kernel, None if total is not None else v_bias, *options
            )
            total = term if total is None else total.add_(term)
    if total is None and v_bias is not None:  # the bias alone was differentiated
        shape = _convolution(x, weight, None, *options).shape
        return v_bias.view(-1, *[1] * (x.ndim - 2)).expand(shape)
    return total
