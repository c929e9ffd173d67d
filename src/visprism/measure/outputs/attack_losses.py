"""Losses that attacks raise, in float64, as functions of pixels.

With z the logits, t the target, p the softmax and j any other class:

    cross-entropy  log((1 - p_t) / p_t) = log sum_j exp(z_j) - z_t
    margin         max_j z_j - z_t
    DLR            (max_j z_j - z_t) / (z_(1) - z_(3))
    targeted DLR   (z_c - z_t) / (z_(1) - (z_(3) + z_(4)) / 2), of a class c

with z_(k) the k-th largest logit. The first is an increasing function of the cross-entropy: the
direction of the gradient is the same, and it does not vanish where p_t rounds to 1. The others
do not depend on the scale of the logits.

Source: Carlini and Wagner (2017), Towards evaluating the robustness of neural networks; Croce
and Hein (2020), Reliable evaluation of adversarial robustness with an ensemble of diverse
parameter-free attacks, eq. 6 and 7.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from visprism.anatomy import forward
from visprism.core.errors import InputError
from visprism.measure.outputs.perturbation_ball import Pixels
from visprism.passes.pixel_space import PixelSpace

_ZERO = 1e-12  # logits that differ by less are equal; as in AutoAttack


@dataclass(frozen=True)
class LossValues:
    """The loss of each image, its gradient for the pixels, and the margin."""

    loss: Float[Tensor, " b"]
    gradient: Pixels
    margin: Float[Tensor, " b"]


@dataclass(frozen=True)
class AttackLoss:
    """The loss that an attack raises, and the margin, as functions of pixels."""

    model: nn.Module
    space: PixelSpace
    targets: Int64[Tensor, " b"]
    name: str = "cross-entropy"
    toward: Int64[Tensor, " b"] | None = None  # class c of the targeted DLR

    def margin(self, pixels: Pixels) -> Float[Tensor, " b"]:
        """The largest other logit minus that of the target: above 0 where misclassified."""
        with torch.no_grad():
            return _margin(self.logits(pixels), self.targets)

    def gradient(self, pixels: Pixels) -> tuple[Pixels, Float[Tensor, " b"]]:
        """Gradient of the loss with respect to the pixels, and the margin."""
        values = self.values(pixels)
        return values.gradient, values.margin

    def values(self, pixels: Pixels) -> LossValues:
        """Loss, gradient and margin, by a forward and a backward pass."""
        with torch.enable_grad():
            variable = pixels.detach().requires_grad_()
            logits = self.logits(variable)
            loss = self._of(logits)
            gradient = None
            if loss.requires_grad:
                (gradient,) = torch.autograd.grad(loss.sum(), variable, allow_unused=True)
        if gradient is None:
            raise InputError(
                f"{type(self.model).__name__} must pass a gradient to its images for attacks "
                "by gradient. Use random perturbations, or a model without no_grad and detach."
            )
        return LossValues(loss.detach(), gradient, _margin(logits.detach(), self.targets))

    def logits(self, pixels: Pixels) -> Float[Tensor, "b k"]:
        """Logits of the images with these pixels."""
        return forward(self.model, self.space.normalized(pixels)).double()

    def _of(self, logits: Float[Tensor, "b k"]) -> Float[Tensor, " b"]:
        if self.name == "cross-entropy":
            return _log_odds(logits, self.targets)
        if self.name == "margin":
            return _margin(logits, self.targets)
        return _logit_ratio(logits, self.targets, self.toward)


def other_classes(
    logits: Float[Tensor, "b k"], targets: Int64[Tensor, " b"], number: int
) -> Int64[Tensor, "b c"]:
    """The classes of the largest other logits; all others if there are fewer."""
    return _others(logits, targets).topk(min(number, logits.shape[1] - 1), dim=1).indices


def _margin(logits: Float[Tensor, "b k"], targets: Int64[Tensor, " b"]) -> Float[Tensor, " b"]:
    return _others(logits, targets).amax(1) - _of_class(logits, targets)


def _log_odds(
    logits: Float[Tensor, "b k"], targets: Int64[Tensor, " b"]
) -> Float[Tensor, " b"]:
    return _others(logits, targets).logsumexp(1) - _of_class(logits, targets)


def _logit_ratio(
    logits: Float[Tensor, "b k"],
    targets: Int64[Tensor, " b"],
    toward: Int64[Tensor, " b"] | None,
) -> Float[Tensor, " b"]:
    """The difference of logits ratio (DLR), targeted where a class is given."""
    fewest = 3 if toward is None else 4
    if logits.shape[1] < fewest:
        raise InputError(
            f"loss 'dlr' must have at least {fewest} classes, got {logits.shape[1]}. Use "
            "'cross-entropy'."
        )
    ranked = logits.topk(fewest, dim=1).values
    if toward is None:
        return _margin(logits, targets) / (ranked[:, 0] - ranked[:, 2] + _ZERO)
    spread = ranked[:, 0] - (ranked[:, 2] + ranked[:, 3]) / 2
    return (_of_class(logits, toward) - _of_class(logits, targets)) / (spread + _ZERO)


def _of_class(
    logits: Float[Tensor, "b k"], classes: Int64[Tensor, " b"]
) -> Float[Tensor, " b"]:
    return logits.gather(1, classes[:, None])[:, 0]


def _others(logits: Float[Tensor, "b k"], targets: Int64[Tensor, " b"]) -> Float[Tensor, "b k"]:
    return logits.scatter(1, targets[:, None], -torch.inf)
