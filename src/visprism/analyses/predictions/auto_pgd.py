"""Adversarial examples: FGSM, PGD and Auto-PGD, perturbations of pixels that raise a loss.

All work on pixels in 0 ... 1 and stay there. One in a band of frequencies is not clipped, which
would take it out of the band.

Source: Goodfellow et al. (2015), Explaining and harnessing adversarial examples; Madry et al.
(2018), Towards deep learning models resistant to adversarial attacks; for APGD, Croce and Hein
(2020), Reliable evaluation of adversarial robustness with an ensemble of diverse parameter-free
attacks, algorithm 1 and sec. 3.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from visprism.analyses.predictions.attacks import (
    Attack,
    AttackLoss,
    ImageNoise,
    PerturbationBall,
    other_classes,
)
from visprism.passes.perturbed import Pixels, PixelSpace

_FIRST_SIZE = 2.0  # of a step, in units of epsilon
_MOMENTUM = 0.75  # weight of the gradient step; the rest is that of the last step
_SUCCESSES = 0.75  # fraction of steps that must raise the loss to leave the step size as it is


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
    succeeds.

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
        return Attacked(_chosen(correct, perturbed, pixels), none, correct)
    gradient = loss.values(pixels).gradient
    flat = correct & (gradient == 0).flatten(1).all(1)
    if attack.name == "fgsm":
        perturbed = pixels + ball.project(ball.steepest_step(gradient), pixels)
        return Attacked(_chosen(correct, perturbed, pixels), flat, correct)
    best, largest = pixels, clean_margin
    for start in range(attack.restarts):
        for objective in _objectives(loss, pixels, attack):
            perturbation = ball.project(ball.random_start(noise, start), pixels)
            iterates = _pgd if attack.name == "pgd" else auto_pgd
            for iterate, margin in iterates(pixels, perturbation, ball, objective):
                better = correct & (margin > largest)
                largest = torch.where(better, margin, largest)
                best = _chosen(better, iterate, best)
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
        point = loss.values(pixels + perturbation)
        yield pixels + perturbation, point.margin
        ascent = ball.steepest_step(point.gradient) * (attack.stride / attack.epsilon)
        perturbation = ball.project(perturbation + ascent, pixels)
    yield pixels + perturbation, loss.margin(pixels + perturbation)


def checkpoints(steps: int) -> list[int]:
    """Numbers of steps after which the step size may be halved.

    They are ceil(p_j N) with p_0 = 0, p_1 = 0.22 and p_{j+1} = p_j + max(p_j - p_{j-1} - 0.03,
    0.06), up to N steps.

    Example:
        >>> checkpoints(100)
        [22, 41, 57, 70, 80, 87, 93, 99]
    """
    hundredths, last = [0, 22], 100
    while hundredths[-1] <= last:
        gap = hundredths[-1] - hundredths[-2]
        hundredths.append(hundredths[-1] + max(gap - 3, 6))
    return [ceil(p * steps / 100) for p in hundredths[1:-1]]


def auto_pgd(
    pixels: Pixels, perturbation: Pixels, ball: PerturbationBall, loss: AttackLoss
) -> Iterator[tuple[Pixels, Float[Tensor, " b"]]]:
    """The iterates of APGD with their margins.

    A step goes to a projected point along the gradient, and keeps a quarter of the last step.
    At each checkpoint the step of an image is halved, and it goes back to its largest loss, if
    fewer than 75% of the steps since the last checkpoint raised the loss, or if the step was
    not halved then and the largest loss has not risen since.
    """
    steps = ball.attack.steps
    halving = checkpoints(steps)
    point = loss.values(pixels + perturbation)
    yield pixels + perturbation, point.margin
    size = torch.full_like(point.loss, _FIRST_SIZE)
    gradient, value, last = point.gradient, point.loss, perturbation
    best, best_gradient, best_value = perturbation, gradient, value
    checked_value, checked_step = best_value, 0
    halved = torch.zeros_like(value, dtype=torch.bool)
    successes = torch.zeros_like(value)
    for step in range(1, steps + 1):
        ascent = size.to(pixels)[:, None, None, None] * ball.steepest_step(gradient)
        target = ball.project(perturbation + ascent, pixels)
        if step > 1:
            target = ball.project(
                perturbation
                + _MOMENTUM * (target - perturbation)
                + (1 - _MOMENTUM) * (perturbation - last),
                pixels,
            )
        last, perturbation = perturbation, target
        if step == steps:
            break
        point = loss.values(pixels + perturbation)
        yield pixels + perturbation, point.margin
        successes = successes + (point.loss > value)
        gradient, value = point.gradient, point.loss
        better = value > best_value
        best = _chosen(better, perturbation, best)
        best_gradient = _chosen(better, gradient, best_gradient)
        best_value = torch.where(better, value, best_value)
        if step in halving:
            few = successes < _SUCCESSES * (step - checked_step)
            halved = few | (~halved & (best_value <= checked_value))
            size = torch.where(halved, size / 2, size)
            perturbation = _chosen(halved, best, perturbation)
            gradient = _chosen(halved, best_gradient, gradient)
            value = torch.where(halved, best_value, value)
            checked_value, checked_step = best_value, step
            successes = torch.zeros_like(value)
    yield pixels + perturbation, loss.margin(pixels + perturbation)


def _chosen(condition: Bool[Tensor, " b"], new: Pixels, old: Pixels) -> Pixels:
    return torch.where(condition[:, None, None, None], new, old)
