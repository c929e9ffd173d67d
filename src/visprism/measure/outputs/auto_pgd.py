"""Auto-PGD: projected gradient ascent with momentum that chooses its step size.

Source: Croce and Hein (2020), Reliable evaluation of adversarial robustness with an ensemble of
diverse parameter-free attacks, algorithm 1 and sec. 3.
"""

from collections.abc import Iterator
from math import ceil

import torch
from jaxtyping import Float
from torch import Tensor

from visprism.measure.outputs.attack_losses import AttackLoss
from visprism.measure.outputs.perturbation_ball import PerturbationBall, Pixels

_FIRST_SIZE = 2.0  # of a step, in units of epsilon
_MOMENTUM = 0.75  # weight of the gradient step; the rest is that of the last step
_SUCCESSES = 0.75  # fraction of steps that must raise the loss to leave the step size as it is


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

    Args:
        pixels: of the images.
        perturbation: to start with.
        ball: the attack and its perturbations.
        loss: that is maximized.
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
        ascent = _by_image(size, perturbation) * ball.steepest_step(gradient)
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


def _by_image(values: Float[Tensor, " b"], like: Pixels) -> Pixels:
    return values.to(like)[:, None, None, None].expand_as(like)


def _chosen(condition: Tensor, new: Pixels, old: Pixels) -> Pixels:
    return torch.where(condition[:, None, None, None], new, old)
