"""The linear part of an optimizer's update, its stability threshold, and SAM's ascent step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan, sqrt
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.linalg import vector_norm
from torch.optim import SGD, Adam, AdamW, Optimizer

from visprism.core.errors import InputError

_ETA = 0.01  # keeps weights that are 0 movable (Kwon et al., 2021, sec. 4)


@dataclass(frozen=True)
class UpdateRule:
    """The linear part of an optimizer's update, for parameters as one vector."""

    optimizer: str  # name of its class
    learning_rate: float  # the largest of its parameter groups
    threshold: float  # largest stable eigenvalue; NaN: not known, or the learning rate is 0
    decay: Float[Tensor, " p"]  # coupled weight decay, which the optimizer adds to the gradient
    scale: Float[Tensor, " p"] | None  # P^-1/2; None: P = 1


def update_rule(
    optimizers: Sequence[Optimizer], parameters: Mapping[str, Tensor]
) -> UpdateRule:
    """The preconditioner P and the stability threshold of the present state of the optimizers.

    P is 1 for SGD, also with momentum, dampening and Nesterov's momentum. For Adam and AdamW
    with t updates made, P = (1 - beta1^t) (sqrt(v / (1 - beta2^t)) + eps), and beta = tau =
    beta1, so that the threshold at beta1 = 0.9 is 38 / lr. Where parameter groups have
    different learning rates, P is divided by their ratio to the largest. The threshold of
    other optimizers, and of groups with different momentum, is not known (NaN).

    An update with momentum beta and dampening tau, v <- beta v + (1 - tau) g and
    w <- w - lr P^-1 v, on a quadratic with Hessian H is stable if and only if every eigenvalue
    of P^-1/2 H P^-1/2 is below (2 + 2 beta) / ((1 - tau) lr).

    Sources: Cohen et al. (2021, 2022); see `training_curvature`.
    """
    states = {
        id(p): (optimizer, group)
        for optimizer in optimizers
        for group in optimizer.param_groups
        for p in group["params"]
    }
    members = [(p, *states[id(p)]) for p in parameters.values()]
    if any(group.get("maximize") for _, _, group in members):
        raise InputError("maximize must be False for a stability threshold, got True")
    lr = max(float(group["lr"]) for _, _, group in members)
    factors = {_momentum_factor(optimizer, group) for _, optimizer, group in members}
    factor = factors.pop() if len(factors) == 1 else nan
    names = dict.fromkeys(type(optimizer).__name__ for _, optimizer, _ in members)
    return UpdateRule(
        optimizer=" and ".join(names),
        learning_rate=lr,
        threshold=factor / lr if lr else nan,
        decay=torch.cat(
            [torch.full_like(p.detach(), _decay(o, g)).flatten() for p, o, g in members]
        ),
        scale=_scale(members, lr),
    )


def sam_threshold(threshold: float, rho: float, gradient_norm: float) -> float:
    """The largest stable eigenvalue of SAM, given the eigenvalue of the optimizer without SAM.

    On a quadratic with gradient g, SAM's gradient is (H + rho / |g| H^2) w, so that the update
    is stable up to the positive root of lambda + rho / |g| lambda^2 = threshold,

        lambda = |g| / (2 rho) (sqrt(1 + 4 rho threshold / |g|) - 1).

    Source: Long & Bartlett (2024), the SAM-edge, for gradient descent with threshold 2 / lr.

    Example:
        >>> sam_threshold(6.0, rho=0.5, gradient_norm=0.5)  # 2 + 2^2 = 6
        2.0
    """
    if not gradient_norm > 0:
        return nan
    ratio = rho / gradient_norm
    return (sqrt(1 + 4 * ratio * threshold) - 1) / (2 * ratio)


def _momentum_factor(optimizer: Optimizer, group: Mapping[str, Any]) -> float:
    """The threshold times the learning rate; NaN where it is not known."""
    if isinstance(optimizer, SGD):
        beta, tau = float(group["momentum"]), float(group["dampening"])
        if group["nesterov"]:
            return (2 + 2 * beta) / (1 + 2 * beta)
        return (2 + 2 * beta) / (1 - tau) if beta else 2.0
    if isinstance(optimizer, Adam | AdamW):
        beta = float(group["betas"][0])
        return (2 + 2 * beta) / (1 - beta)
    return nan


def _decay(optimizer: Optimizer, group: Mapping[str, Any]) -> float:
    """Weight decay that is added to the gradient; 0 where it is decoupled from it."""
    decoupled = group.get("decoupled_weight_decay", isinstance(optimizer, AdamW))
    coupled = isinstance(optimizer, SGD | Adam) and not decoupled
    return float(group["weight_decay"]) if coupled else 0.0


def _scale(
    members: Sequence[tuple[Tensor, Optimizer, Mapping[str, Any]]], lr: float
) -> Float[Tensor, " p"] | None:
    """P^-1/2 of all parameters; None if P = 1."""
    adaptive = any(isinstance(optimizer, Adam | AdamW) for _, optimizer, _ in members)
    uniform = len({float(group["lr"]) for _, _, group in members}) == 1
    if not adaptive and uniform:
        return None
    if adaptive and not any(o.state.get(p) for p, o, _ in members):
        raise InputError(
            "the optimizer must have made an update, since its first one determines the "
            "preconditioner. Measure after optimizer.step()."
        )
    parts = []
    for parameter, optimizer, group in members:
        inverse = _inverse_preconditioner(parameter, optimizer, group)
        ratio = float(group["lr"]) / lr if lr else 1.0
        parts.append((inverse * ratio).sqrt().flatten())
    return torch.cat(parts)


def _inverse_preconditioner(
    parameter: Tensor, optimizer: Optimizer, group: Mapping[str, Any]
) -> Tensor:
    """P^-1 of a parameter; 0 where Adam has not updated it."""
    if not isinstance(optimizer, Adam | AdamW):
        return torch.ones_like(parameter.detach())
    state = optimizer.state.get(parameter)
    if not state:
        return torch.zeros_like(parameter.detach())
    beta1, beta2 = (float(beta) for beta in group["betas"])
    updates = float(state["step"])
    squares = state["max_exp_avg_sq" if group["amsgrad"] else "exp_avg_sq"].detach()
    root = (squares / (1 - beta2**updates)).sqrt() + group["eps"]
    return 1 / ((1 - beta1**updates) * root)


def sam_step(
    weights: Sequence[Tensor], gradients: Sequence[Tensor], rho: float, *, adaptive: bool
) -> list[Tensor]:
    """The displacement d of the weights w to the highest loss within a radius, to first order.

    SAM: d = rho g / |g|. ASAM: d = rho T² g / |T g| with T = |w| + 0.01, entry by entry. Norms
    are over all parameters. Where the gradient is zero, d is zero.

    Source: Foret et al. (2021), Sharpness-aware minimization, eq. 2; Kwon et al. (2021), ASAM,
    eq. 8.
    """
    scales = [w.abs() + _ETA if adaptive else torch.ones_like(w) for w in weights]
    scaled = [t * g for t, g in zip(scales, gradients, strict=True)]
    # Squares of a gradient of 1e-30 would be 0; of a shard without entries there is no maximum.
    total = torch.stack([vector_norm(s, 1) for s in scaled]).sum()
    scaled = [s / torch.where(total > 0, total, 1.0) for s in scaled]
    length = torch.stack([vector_norm(s) for s in scaled]).norm()
    factor = torch.where(length > 0, rho / length, 0.0)
    return [factor * t * s for t, s in zip(scales, scaled, strict=True)]
