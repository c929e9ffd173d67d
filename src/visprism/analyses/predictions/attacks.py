"""Attacks: what they may change, and the losses that they raise.

Losses are functions of pixels in float64. With z the logits, t the target, p the softmax and j
any other class:

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

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from visprism import kit
from visprism.anatomy.trace.forward import forward
from visprism.core.options import check_options
from visprism.passes.perturbed import Pixels, PixelSpace, random_numbers

_ZERO = 1e-30  # a gradient that is not longer has no direction
_EQUAL = 1e-12  # logits that differ by less are equal; as in AutoAttack


@dataclass(frozen=True)
class Attack:
    """An adversarial attack within a ball of perturbations.

    - "fgsm": one step along the gradient of the loss: its sign, or its direction for "l2".
    - "pgd": projected gradient ascent from random starts; of all iterates the one with the
      largest margin counts for each image.
    - "apgd": projected gradient ascent with momentum that chooses its step size; one of the
      attacks of AutoAttack.
    - "apgd-t": the same toward each of several other classes, by the targeted DLR loss.
    - "random": random signs, or a random direction for "l2".
    """

    name: Literal["random", "fgsm", "pgd", "apgd", "apgd-t"] = kit.option("fgsm", "attack")
    epsilon: float = kit.option(
        8 / 255, "norm of the perturbation, for pixel values in [0, 1]", above=0
    )
    norm: Literal["linf", "l2"] = kit.option("linf", "norm of the perturbation")
    loss: Literal["cross-entropy", "margin", "dlr"] = kit.option(
        "cross-entropy", "loss; margin and dlr ignore the scale of the logits"
    )
    steps: int = kit.option(10, "number of steps of PGD and APGD", minimum=1)
    step_size: float | None = kit.option(
        None, "step size of PGD; none: 2.5 epsilon / steps", above=0
    )
    restarts: int = kit.option(1, "number of random starts of PGD and APGD", minimum=1)
    target_classes: int = kit.option(
        9, "number of other classes that apgd-t aims at", minimum=1
    )

    def __post_init__(self) -> None:
        check_options(self)
        if self.norm == "linf" and self.epsilon > 1:
            raise kit.InputError(
                f"epsilon must be at most 1, as pixels are in 0 ... 1, got {self.epsilon}. "
                "Write 4 of 255 gray levels as 4/255."
            )
        if self.name == "apgd-t" and self.loss != "dlr":
            raise kit.InputError(f"loss must be 'dlr' for apgd-t, got {self.loss!r}")

    @property
    def iterative(self) -> bool:
        """Whether it takes several steps, from random starts."""
        return self.name not in ("fgsm", "random")

    @property
    def gradients(self) -> int:
        """Number of gradients of the loss that it computes."""
        targets = self.target_classes if self.name == "apgd-t" else 1
        single = {"random": 0, "fgsm": 1}
        return single.get(self.name, self.steps * self.restarts * targets)

    @property
    def min_classes(self) -> int:
        """Fewest classes of a model, which the DLR loss divides by the logits of."""
        return {"dlr": 3}.get(self.loss, 2) + (self.name == "apgd-t")

    @property
    def stride(self) -> float:
        """Length of a step of PGD."""
        # All steps of Madry et al. together reach 2.5 times as far as the ball.
        return 2.5 * self.epsilon / self.steps if self.step_size is None else self.step_size


def image_noise(pixels: Pixels, seed: int, indices: range, start: int) -> Pixels:
    """Gaussian noise of each image, only from the seed, its index and the start."""
    size = pixels.shape[1:]
    return random_numbers(torch.randn, size, indices, seed, "attack", start).to(pixels)


@dataclass(frozen=True)
class PerturbationBall:
    """The perturbations that an attack may make."""

    attack: Attack

    def steepest_step(self, gradient: Pixels) -> Pixels:
        """The longest perturbation along a gradient: along its sign for the L∞ norm."""
        direction = gradient.sign() if self.attack.norm == "linf" else gradient
        return self._scaled(direction)

    def random_start(self, pixels: Pixels, seed: int, indices: range, start: int) -> Pixels:
        """A random perturbation, uniform in the ball."""
        normal = image_noise(pixels, seed, indices, start)
        if self.attack.norm == "linf":
            # Uniform in every pixel: the normal distribution through its own integral.
            return self.attack.epsilon * torch.erf(normal / 2**0.5)
        use = seed, "attack radius", start
        radius = random_numbers(torch.rand, (1, 1, 1), indices, *use).to(pixels)
        return self.steepest_step(normal) * radius ** (1 / normal[0].numel())

    def project(self, perturbation: Pixels, pixels: Pixels) -> Pixels:
        """The perturbation projected to the ball, and to pixels in 0 ... 1."""
        if self.attack.norm == "linf":
            inside = perturbation.clamp(-self.attack.epsilon, self.attack.epsilon)
        else:
            inside = torch.where(
                self._length(perturbation) > self.attack.epsilon,
                self._scaled(perturbation),
                perturbation,
            )
        return (pixels + inside).clamp(0, 1) - pixels

    def _scaled(self, direction: Pixels) -> Pixels:
        # A gradient of 0 has no direction and stays 0.
        return direction * (self.attack.epsilon / self._length(direction).clamp(min=_ZERO))

    def _length(self, x: Pixels) -> Float[Tensor, "b 1 1 1"]:
        if self.attack.norm == "linf":
            return x.abs().amax((1, 2, 3), keepdim=True)
        return x.flatten(1).norm(dim=1)[:, None, None, None]


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
        """The largest other logit minus the target's: above 0 if misclassified."""
        with torch.no_grad():
            return _margin(self.logits(pixels), self.targets)

    def values(self, pixels: Pixels) -> LossValues:
        """Loss, gradient and margin, by a forward and a backward pass."""
        with torch.enable_grad():
            variable = pixels.detach().requires_grad_()
            logits = self.logits(variable)
            loss = self.of(logits)
            gradient = None
            if loss.requires_grad:
                (gradient,) = torch.autograd.grad(loss.sum(), variable, allow_unused=True)
        if gradient is None:
            raise kit.InputError(
                f"{type(self.model).__name__} must pass a gradient to its images for attacks "
                "by gradient. Use random perturbations, or a model without no_grad and detach."
            )
        return LossValues(loss.detach(), gradient, _margin(logits.detach(), self.targets))

    def logits(self, pixels: Pixels) -> Float[Tensor, "b k"]:
        """Logits of the images with these pixels."""
        logits = forward(self.model, self.space.normalized(pixels))
        return logits if logits.device.type == "mps" else logits.double()

    def of(self, logits: Float[Tensor, "b k"]) -> Float[Tensor, " b"]:
        """The loss of each image."""
        if self.name == "cross-entropy":
            others = _others(logits, self.targets)
            return others.logsumexp(1) - _of_class(logits, self.targets)
        if self.name == "margin":
            return _margin(logits, self.targets)
        return self._logit_ratio(logits)

    def _logit_ratio(self, logits: Float[Tensor, "b k"]) -> Float[Tensor, " b"]:
        """The difference of logits ratio (DLR), targeted where a class is given."""
        fewest = 3 if self.toward is None else 4
        if logits.shape[1] < fewest:
            raise kit.InputError(
                f"loss 'dlr' must have at least {fewest} classes, got {logits.shape[1]}. Use "
                "'cross-entropy'."
            )
        ranked = logits.topk(fewest, dim=1).values
        if self.toward is None:
            return _margin(logits, self.targets) / (ranked[:, 0] - ranked[:, 2] + _EQUAL)
        spread = ranked[:, 0] - (ranked[:, 2] + ranked[:, 3]) / 2
        gap = _of_class(logits, self.toward) - _of_class(logits, self.targets)
        return gap / (spread + _EQUAL)


def other_classes(
    logits: Float[Tensor, "b k"], targets: Int64[Tensor, " b"], number: int
) -> Int64[Tensor, "b c"]:
    """The classes of the largest other logits; all others if there are fewer."""
    return _others(logits, targets).topk(min(number, logits.shape[1] - 1), dim=1).indices


def _margin(logits: Float[Tensor, "b k"], targets: Int64[Tensor, " b"]) -> Float[Tensor, " b"]:
    return _others(logits, targets).amax(1) - _of_class(logits, targets)


def _of_class(
    logits: Float[Tensor, "b k"], classes: Int64[Tensor, " b"]
) -> Float[Tensor, " b"]:
    return logits.gather(1, classes[:, None])[:, 0]


def _others(logits: Float[Tensor, "b k"], targets: Int64[Tensor, " b"]) -> Float[Tensor, "b k"]:
    return logits.scatter(1, targets[:, None], -torch.inf)


# Adversarial examples: FGSM, PGD and Auto-PGD, perturbations of pixels that raise a loss.

_FIRST_SIZE = 2.0  # of a step, in units of epsilon
_MOMENTUM = 0.75  # weight of the gradient step; the rest is the last step's
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
    """
    indices = indices or range(len(pixels))
    ball = PerturbationBall(attack)
    loss = AttackLoss(model, space, targets, attack.loss)
    clean_margin = loss.margin(pixels)
    correct = clean_margin <= 0
    none = torch.zeros_like(correct)
    if attack.name == "random":
        perturbed = pixels + ball.project(
            ball.steepest_step(image_noise(pixels, seed, indices, 0)), pixels
        )
        return Attacked(_chosen(correct, perturbed, pixels), none, correct)
    gradient = loss.values(pixels).gradient
    flat = correct & (gradient == 0).flatten(1).all(1)
    if attack.name == "fgsm":
        perturbed = pixels + ball.project(ball.steepest_step(gradient), pixels)
        return Attacked(_chosen(correct, perturbed, pixels), flat, correct)
    best, largest = pixels, clean_margin
    for start in range(attack.restarts):
        for objective in _objectives(loss, pixels, attack):
            perturbation = ball.project(ball.random_start(pixels, seed, indices, start), pixels)
            iterates = _pgd if attack.name == "pgd" else auto_pgd
            for iterate, margin in iterates(pixels, perturbation, ball, objective):
                better = correct & (margin > largest)
                largest = torch.where(better, margin, largest)
                best = _chosen(better, iterate, best)
    return Attacked(best, flat, correct)


def _objectives(loss: AttackLoss, pixels: Pixels, attack: Attack) -> Iterator[AttackLoss]:
    """The loss; for a targeted attack the loss of each class, the most likely first."""
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
