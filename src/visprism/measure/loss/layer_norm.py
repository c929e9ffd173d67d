"""LayerNorm whose derivatives are cached between Hessian-vector products.

With x the input, r = 1/sqrt(var + eps) and n = (x - mean) r, the derivative is the map

    B(g) = r (g - mean(g) - n mean(g n))

of g = gamma * (gradient of the output). B is symmetric, and r, n and the means of g do not
depend on the vector of a product, so that they are computed once.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional


def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """`torch.nn.functional.layer_norm`, with cached derivatives over the last axis."""
    last_axis = tuple(normalized_shape) == input.shape[-1:]
    derived = input.requires_grad and input.numel() > 0
    if last_axis and derived and _have_its_type(input, weight, bias):
        return _LayerNorm.apply(input, weight, bias, eps)
    return functional.layer_norm(input, normalized_shape, weight, bias, eps)


def _have_its_type(x: Tensor, *parameters: Tensor | None) -> bool:
    """Whether all parameters are present, with the size of the last axis and the type of x."""
    return x.is_floating_point() and all(
        p is not None and p.shape == x.shape[-1:] and p.dtype == x.dtype for p in parameters
    )


class _LayerNorm(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        variance, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
        rate = (variance + eps).rsqrt()
        normal = (x - mean) * rate
        ctx.save_for_backward(x, weight, normal, rate)
        return torch.addcmul(bias, normal, weight)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return *_Derivative.apply(*grads, *ctx.saved_tensors), None


class _Derivative(Function):
    """Gradients with respect to x, gamma and beta, as functions of g, x and gamma."""

    @staticmethod
    def forward(
        ctx: Any,
        grad: Tensor,
        x: Tensor,  # noqa: ARG004 (its gradient is returned)
        weight: Tensor,
        normal: Tensor,
        rate: Tensor,
    ):
        scaled = grad * weight
        along = (scaled * normal).mean(-1, keepdim=True)
        ctx.save_for_backward(grad, weight, normal, rate, scaled, along)
        return (
            _centered(scaled, normal, along, rate),
            (grad * normal).sum_to_size(weight.shape),
            grad.sum_to_size(weight.shape),
        )

    @staticmethod
    def backward(ctx: Any, *vectors: Tensor) -> tuple[Tensor | None, ...]:
        v, v_weight, v_bias = vectors
        grad, weight, normal, rate, scaled, along = ctx.saved_tensors
        mean_v = (v * normal).mean(-1, keepdim=True)
        onto = _centered(v, normal, mean_v, rate)  # B(v)
        to_grad = torch.addcmul(v_bias, normal, v_weight).addcmul_(onto, weight)
        to_weight = (grad * onto).sum_to_size(weight.shape)
        # Of <v, B(g)>: first through n, which B applied to its gradient takes back to x, then
        # through r, where d r / d x = -r^2 n / D.
        through = (v * along).addcmul_(scaled, mean_v).mul_(-rate).addcmul_(grad, v_weight)
        level = (through * normal).mean(-1, keepdim=True)
        to_x = _centered(through, normal, level, rate)
        product = (onto * scaled).mean(-1, keepdim=True)  # <v, B(g)> / D
        return to_grad, to_x.addcmul_(normal, product * rate, value=-1), to_weight, None, None


def _centered(g: Tensor, normal: Tensor, along: Tensor, rate: Tensor) -> Tensor:
    """B(g), where `along` is mean(g n)."""
    return torch.addcmul(g - g.mean(-1, keepdim=True), normal, along, value=-1).mul_(rate)
