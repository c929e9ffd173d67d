"""Losses: one number for each example, so that data of any cut gives the same mean."""

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

    Raises:
        InputError: if the targets do not fit the logits, or an image has no label.

    Example:
        >>> cross_entropy(torch.zeros(2, 4), torch.tensor([0, 3])).tolist()
        [1.3862943649291992, 1.3862943649291992]
    """
    if targets.ndim == 1 and not targets.is_floating_point():
        _check_classes(targets, logits.shape[1])
        return functional.cross_entropy(logits, targets.long(), reduction="none")
    if targets.shape != logits.shape:
        raise InputError(
            f"targets have the shape {tuple(targets.shape)} for logits of "
            f"{tuple(logits.shape)}; give classes (B,) or probabilities (B, K)"
        )
    return -(targets * functional.log_softmax(logits, dim=1)).sum(1)


def smoothed_cross_entropy(smoothing: float) -> Loss:
    """`cross_entropy` with targets (1 - s) t + s / K.

    Raises:
        InputError: if the smoothing is not in 0 ... 1.

    Source: Szegedy et al. (2016), Rethinking the Inception architecture, sec. 7.
    """
    if not 0 <= smoothing < 1:
        raise InputError(f"smoothing is {smoothing}; wants a part from 0 to below 1")

    def loss(logits: Tensor, targets: Tensor) -> Tensor:
        uniform = -functional.log_softmax(logits, dim=1).mean(1)
        return (1 - smoothing) * cross_entropy(logits, targets) + smoothing * uniform

    return loss


def losses_of(loss: Loss, logits: Tensor, targets: Tensor) -> Float[Tensor, " b"]:
    """The loss of each example.

    Raises:
        InputError: if the loss gives anything else.
    """
    losses = loss(logits, targets)
    if not isinstance(losses, Tensor) or losses.shape != (len(logits),):
        got = f"shape {tuple(losses.shape)}" if isinstance(losses, Tensor) else repr(losses)
        raise InputError(
            f"the loss gives {got} for {len(logits)} examples; it must give one number for "
            "each example, as cross_entropy(..., reduction='none') does"
        )
    return losses


def _check_classes(targets: Tensor, classes: int) -> None:
    low, high = (int(bound) for bound in torch.aminmax(targets))
    if low < 0:
        raise InputError(
            f"target {low} is no class; the loss needs labeled images, as a folder with one "
            "folder for each class has"
        )
    if high >= classes:
        raise InputError(
            f"target {high} is out of range: the model has {classes} classes, 0 to "
            f"{classes - 1}; use data with the model's classes"
        )
