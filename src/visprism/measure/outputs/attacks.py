"""Attacks: perturbations of pixels that raise a model's loss.

All work on pixels in 0 ... 1 and stay there. One in a band of frequencies is not clipped, which
would take it out of the band.

Source: Goodfellow et al. (2015), Explaining and harnessing adversarial examples; Madry et al.
(2018), Towards deep learning models resistant to adversarial attacks; for the margin, Carlini
and Wagner (2017), Towards evaluating the robustness of neural networks.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from visprism.anatomy import forward
from visprism.core.errors import InputError
from visprism.measure.outputs.perturbation_ball import (
    Attack,
    ImageNoise,
    PerturbationBall,
    Pixels,
)
from visprism.measure.outputs.pixel_space import PixelSpace


@dataclass(frozen=True)
class Attacked:
    """Pixels after an attack."""

    pixels: Pixels
    # Images classified correctly at which the gradient of the loss is 0 in every pixel.
    zero_gradient: Bool[Tensor, " b"]
    correct: Bool[Tensor, " b"]  # images classified correctly without attack


def attack_images(
    model: nn.Module,
    pixels: Pixels,
    targets: Int64[Tensor, " b"],
    attack: Attack,
    space: PixelSpace,
    *,
    seed: int = 0,
    indices: range | None = None,
) -> Attacked:
    """Adversarial examples of the images that are classified correctly.

    Images that are misclassified without attack stay as they are. PGD returns the iterate with
    the largest margin max_{j != t} z_j - z_t, which is above 0 where the attack succeeds.

    Both losses are computed in float64 from the logits z. "cross-entropy" is maximized through
    log((1 - p_t) / p_t) = log sum_{j != t} exp(z_j) - z_t, of which it is an increasing
    function: the direction of the gradient is the same, and it does not vanish where p_t
    rounds to 1. "margin" does not depend on the scale of the logits either.

    Costs one forward and backward pass for each step and start.

    Args:
        model: in evaluation mode; its parameters get no gradients.
        pixels: in 0 ... 1.
        targets: class indices.
        attack: which, and how strong.
        space: normalization of the model's images.
        seed: of random starts and signs.
        indices: of the images in the data, on which their random numbers depend.

    Raises:
        InputError: if the images have no frequency in the attack's band, or the model passes no
            gradient to them.
    """
    noise = ImageNoise(pixels, seed, indices or range(len(pixels)))
    ball = PerturbationBall.of(attack, pixels)
    loss = AttackLoss(model, space, targets, attack.loss)
    clean_margin = loss.margin(pixels)
    correct = clean_margin <= 0
    none = torch.zeros_like(correct)
    if attack.name == "random":
        perturbed = pixels + ball.project(ball.steepest_step(noise.normal(0)), pixels)
        return Attacked(_where(correct, perturbed, pixels), none, correct)
    gradient, _ = loss.gradient(pixels)
    flat = correct & (gradient == 0).flatten(1).all(1)
    if attack.name == "fgsm":
        perturbed = pixels + ball.project(ball.steepest_step(gradient), pixels)
        return Attacked(_where(correct, perturbed, pixels), flat, correct)
    best, largest = pixels, clean_margin
    for start in range(attack.restarts):
        perturbation = ball.project(ball.random_start(noise, start), pixels)
        for step in range(attack.steps + 1):
            iterate = pixels + perturbation
            last = step == attack.steps
            gradient, margin = (None, loss.margin(iterate)) if last else loss.gradient(iterate)
            better = correct & (margin > largest)
            largest = torch.where(better, margin, largest)
            best = _where(better, iterate, best)
            if gradient is not None:
                ascent = ball.steepest_step(gradient) * (attack.stride / attack.epsilon)
                perturbation = ball.project(perturbation + ascent, pixels)
    return Attacked(best, flat, correct)


def _where(chosen: Bool[Tensor, " b"], new: Pixels, old: Pixels) -> Pixels:
    return torch.where(chosen[:, None, None, None], new, old)


@dataclass(frozen=True)
class AttackLoss:
    """The loss that an attack raises, and the margin, as functions of pixels."""

    model: nn.Module
    space: PixelSpace
    targets: Int64[Tensor, " b"]
    name: str = "cross-entropy"

    def margin(self, pixels: Pixels) -> Float[Tensor, " b"]:
        """The largest other logit minus that of the target: above 0 where misclassified."""
        with torch.no_grad():
            return _margin(self._logits(pixels), self.targets)

    def gradient(self, pixels: Pixels) -> tuple[Pixels, Float[Tensor, " b"]]:
        """Gradient of the loss with respect to the pixels, and the margin."""
        with torch.enable_grad():
            variable = pixels.detach().requires_grad_()
            logits = self._logits(variable)
            function = _margin if self.name == "margin" else _log_odds
            loss = function(logits, self.targets).sum()
            gradient = None
            if loss.requires_grad:
                (gradient,) = torch.autograd.grad(loss, variable, allow_unused=True)
        if gradient is None:
            raise InputError(
                f"{type(self.model).__name__} must pass a gradient to its images for FGSM and "
                "PGD. Use random perturbations, or a model without no_grad and detach."
            )
        return gradient, _margin(logits.detach(), self.targets)

    def _logits(self, pixels: Pixels) -> Float[Tensor, "b k"]:
        return forward(self.model, self.space.normalized(pixels)).double()


def _margin(logits: Float[Tensor, "b k"], targets: Int64[Tensor, " b"]) -> Float[Tensor, " b"]:
    target = logits.gather(1, targets[:, None])[:, 0]
    return _others(logits, targets).amax(1) - target


def _log_odds(
    logits: Float[Tensor, "b k"], targets: Int64[Tensor, " b"]
) -> Float[Tensor, " b"]:
    target = logits.gather(1, targets[:, None])[:, 0]
    return _others(logits, targets).logsumexp(1) - target


def _others(logits: Float[Tensor, "b k"], targets: Int64[Tensor, " b"]) -> Float[Tensor, "b k"]:
    return logits.scatter(1, targets[:, None], -torch.inf)
