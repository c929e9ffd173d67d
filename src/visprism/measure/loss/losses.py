"""Losses: one number per example, so that the mean does not depend on the batch size."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from visprism.core.errors import InputError

Loss = Callable[[Tensor, Tensor], Tensor]  # (logits, targets) -> (b,)


def cross_entropy(logits: Float[Tensor, "b k"], targets: Tensor) -> Float[Tensor, " b"]:
    """-sum_k t_k log softmax(logits)_k of each example, in nats.

    `targets` are classes (b,), or the probabilities of all classes (b, k), as mixup, cutmix and
    label smoothing give them.

    Example:
        >>> cross_entropy(torch.zeros(2, 4), torch.tensor([0, 3])).tolist()
        [1.3862943649291992, 1.3862943649291992]
    """
    if targets.ndim == 1 and not targets.is_floating_point():
        _check_classes(targets, logits.shape[1])
        return functional.cross_entropy(logits, targets.long(), reduction="none")
    if targets.shape != logits.shape:
        raise InputError(
            f"targets must be classes (B,) or probabilities (B, K) for logits of shape "
            f"{tuple(logits.shape)}, got shape {tuple(targets.shape)}"
        )
    return -(targets * functional.log_softmax(logits, dim=1)).sum(1)


def smoothed_cross_entropy(smoothing: float) -> Loss:
    """`cross_entropy` with targets (1 - s) t + s / K.

    Source: Szegedy et al. (2016), Rethinking the Inception architecture, sec. 7.
    """
    if not 0 <= smoothing < 1:
        raise InputError(f"smoothing must be at least 0 and below 1, got {smoothing}")

    def loss(logits: Tensor, targets: Tensor) -> Tensor:
        uniform = -functional.log_softmax(logits, dim=1).mean(1)
        return (1 - smoothing) * cross_entropy(logits, targets) + smoothing * uniform

    return loss


def losses_of(loss: Loss, logits: Tensor, targets: Tensor) -> Float[Tensor, " b"]:
    """The loss of each example."""
    losses = loss(logits, targets)
    if not isinstance(losses, Tensor) or losses.shape != (len(logits),):
        result = f"shape {tuple(losses.shape)}" if isinstance(losses, Tensor) else repr(losses)
        raise InputError(
            f"loss must return one number per example, got {result} for {len(logits)} "
            "examples. Use reduction='none'."
        )
    return losses


def _check_classes(targets: Tensor, classes: int) -> None:
    low, high = (int(bound) for bound in torch.aminmax(targets))
    if low < 0:
        raise InputError(
            f"targets must be class indices from 0 on, got {low}. Use labeled images."
        )
    if high >= classes:
        raise InputError(
            f"targets must be below {classes} (number of classes of the model), got {high}. "
            "Use data with the classes of the model."
        )
