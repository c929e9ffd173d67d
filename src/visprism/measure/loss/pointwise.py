"""Pointwise: activations that can be differentiated twice, and at little cost.

Some have no second derivative in torch, but an equivalent expression has. For others torch
recomputes the derivatives, of a GELU in a dozen steps, for each Hessian-vector product; as they
do not depend on the vector, here they are computed once, and a product multiplies by them.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from visprism.measure.loss.convolution import (
    CONVOLUTIONS,
    convolution,
    is_plain_convolution,
)
from visprism.measure.loss.layer_norm import layer_norm

SMOOTH = (
    functional.gelu,
    functional.silu,
    functional.mish,
    functional.softplus,
    functional.elu,
)


class TwiceDifferentiable(TorchFunctionMode):
    """Inside, operations without a correct second derivative are replaced by equivalents."""

    def __torch_function__(self, func, types, args: Any = (), kwargs=None) -> Any:  # noqa: ANN001
        run = _EQUIVALENTS.get(func, func)
        return run(*args, **(kwargs or {}))


def _hardsigmoid(input: Tensor, *, inplace: bool = False) -> Tensor:
    """Torch's own has no second derivative (torch 2.15)."""
    value = functional.relu6(input + 3) / 6
    return input.copy_(value) if inplace else value


def _weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    """G v / |v|; the second derivative of torch's own is wrong (torch 2.15)."""
    return v * (g / torch.norm_except_dim(v, 2, dim))


_EQUIVALENTS = {functional.hardsigmoid: _hardsigmoid, torch._weight_norm: _weight_norm}


class CachedDerivatives(TorchFunctionMode):
    """Inside, a second backward pass costs less.

    Smooth activations and LayerNorms store their derivatives in the graph, and second
    derivatives of convolutions are those of `convolution`.
    """

    def __torch_function__(self, func, types, args: Any = (), kwargs=None) -> Any:  # noqa: ANN001
        kwargs = kwargs or {}
        if torch._C._functorch.maybe_current_level() is not None:
            return func(*args, **kwargs)  # vmap and others refuse the functions below
        if func is functional.layer_norm:
            return layer_norm(*args, **kwargs)
        if func in CONVOLUTIONS:
            return _convolved(func, *args, **kwargs)
        if func in SMOOTH:
            return _smooth(func, *args, **kwargs)
        return func(*args, **kwargs)


def _smooth(
    func: Callable[..., Tensor],
    input: Tensor,
    *options: Any,
    **named: Any,
) -> Tensor:
    # In place, torch's own derivatives are right and need no copy of the value: with them a
    # gradient of EfficientNet-B0 takes half the time, and Hessian-vector products as long.
    if named.get("inplace") or not input.requires_grad:
        return func(input, *options, **named)
    return _Pointwise.apply(input, lambda x: func(x, *options, **named))


def _convolved(
    func: Callable[..., Tensor],
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    *options: Any,
    **named: Any,
) -> Tensor:
    plain = is_plain_convolution(input, weight, padding)
    run = convolution if plain else func
    return run(input, weight, bias, stride, padding, *options, **named)


class _Pointwise(Function):
    """phi(x), elementwise."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, phi: Callable[[Tensor], Tensor]) -> Tensor:
        with torch.enable_grad():
            leaf = x.detach().requires_grad_()
            value = phi(leaf)
            (first,) = torch.autograd.grad(value.sum(), leaf, create_graph=True)
            (second,) = torch.autograd.grad(first.sum(), leaf)
        ctx.save_for_backward(x, first.detach(), second)
        return value.detach()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return _Derivative.apply(*grads, *ctx.saved_tensors), None


class _Derivative(Function):
    """grad phi'(x), as a function of grad and of x; phi' and phi'' are given."""

    @staticmethod
    def forward(ctx: Any, grad: Tensor, x: Tensor, first: Tensor, second: Tensor) -> Tensor:  # noqa: ARG004
        ctx.save_for_backward(first, grad * second)
        return grad * first

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        (v,) = grads
        first, curvature = ctx.saved_tensors
        return v * first, v * curvature, None, None
