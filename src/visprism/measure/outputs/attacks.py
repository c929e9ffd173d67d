"""Attacks: perturbations of pixels that raise a model's loss.

All work on pixels in 0 ... 1 and stay there. One in a band of frequencies is not clipped, which
would take it out of the band.

Source: Goodfellow et al. (2015), Explaining and harnessing adversarial examples; Madry et al.
(2018), Towards deep learning models resistant to adversarial attacks; for APGD, Croce and Hein
(2020), Reliable evaluation of adversarial robustness with an ensemble of diverse parameter-free
attacks.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from visprism.measure.outputs.attack_losses import AttackLoss, other_classes
from visprism.measure.outputs.auto_pgd import auto_pgd
from visprism.measure.outputs.perturbation_ball import (
    Attack,
    ImageNoise,
    PerturbationBall,
    Pixels,
)
from visprism.passes.pixel_space import PixelSpace


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

    Images that are misclassified without attack stay as they are. PGD and APGD return the
    iterate with the largest margin max_{j != t} z_j - z_t, which is above 0 where the attack
    succeeds. Losses are those of `visprism.measure.outputs.attack_losses`.

    Costs one forward and backward pass for each step, start and target class.

    Args:
        model: in evaluation mode; its parameters get no gradients.
        pixels: in 0 ... 1.
        targets: class indices.
        attack: which, and how strong.
        space: normalization of the model's images.
        seed: of random starts and signs.
        indices: of the images in the data, on which their random numbers depend.
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
        for objective in _objectives(loss, pixels, attack):
            perturbation = ball.project(ball.random_start(noise, start), pixels)
            iterates = _pgd if attack.name == "pgd" else auto_pgd
            for iterate, margin in iterates(pixels, perturbation, ball, objective):
                better = correct & (margin > largest)
                largest = torch.where(better, margin, largest)
                best = _where(better, iterate, best)
    return Attacked(best, flat, correct)


def _objectives(loss: AttackLoss, pixels: Pixels, attack: Attack) -> Iterator[AttackLoss]:
    """The loss; of a targeted attack that of each class, the most likely first."""
    if attack.name != "apgd-t":
        yield loss
        return
    with torch.no_grad():
        classes = other_classes(loss.logits(pixels), loss.targets, attack.target_classes)
    for toward in classes.T:
        yield replace(loss, toward=toward)


def _pgd(
    pixels: Pixels, perturbation: Pixels, ball: PerturbationBall, loss: AttackLoss
) -> Iterator[tuple[Pixels, Float[Tensor, " b"]]]:
    """The iterates of PGD with their margins."""
    attack = ball.attack
    for _ in range(attack.steps):
        gradient, margin = loss.gradient(pixels + perturbation)
        yield pixels + perturbation, margin
        ascent = ball.steepest_step(gradient) * (attack.stride / attack.epsilon)
        perturbation = ball.project(perturbation + ascent, pixels)
    yield pixels + perturbation, loss.margin(pixels + perturbation)


def _where(chosen: Bool[Tensor, " b"], new: Pixels, old: Pixels) -> Pixels:
    return torch.where(chosen[:, None, None, None], new, old)
