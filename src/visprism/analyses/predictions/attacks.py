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

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from visprism.analyses.predictions.bands import BAND_WIDTH, band, filtered
from visprism.anatomy import forward
from visprism.core.errors import InputError
from visprism.core.options import check_options, option
from visprism.core.run import stream
from visprism.passes.perturbed import Pixels, PixelSpace

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

    name: Literal["random", "fgsm", "pgd", "apgd", "apgd-t"] = option("fgsm", "attack")
    epsilon: float = option(
        8 / 255, "norm of the perturbation, for pixel values in [0, 1]", above=0
    )
    norm: Literal["linf", "l2"] = option("linf", "norm of the perturbation")
    loss: Literal["cross-entropy", "margin", "dlr"] = option(
        "cross-entropy", "loss; margin and dlr ignore the scale of the logits"
    )
    steps: int = option(10, "number of steps of PGD and APGD", minimum=1)
    step_size: float | None = option(
        None, "step size of PGD; none: 2.5 epsilon / steps", above=0
    )
    restarts: int = option(1, "number of random starts of PGD and APGD", minimum=1)
    target_classes: int = option(9, "number of other classes that apgd-t aims at", minimum=1)
    frequency: float | None = option(
        None,
        "center of a band in π rad/pixel; none: all frequencies",
        minimum=0,
        maximum=2**0.5,
    )
    band_shape: Literal["square", "round"] = option("square", "shape of the band")

    def __post_init__(self) -> None:
        check_options(self)
        if self.norm == "linf" and self.epsilon > 1:
            raise InputError(
                f"epsilon must be at most 1, as pixels are in 0 ... 1, got {self.epsilon}. "
                "Write 4 of 255 gray levels as 4/255."
            )
        if self.name == "apgd-t" and self.loss != "dlr":
            raise InputError(f"loss must be 'dlr' for apgd-t, got {self.loss!r}")

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


@dataclass(frozen=True)
class ImageNoise:
    """Random numbers of each image, from the seed and the index of the image alone."""

    like: Pixels
    seed: int
    indices: range

    def normal(self, start: int) -> Pixels:
        """Gaussian noise."""
        shape = self.like.shape[1:]
        noise = [
            torch.randn(shape, generator=stream(self.seed, "attack", start, index))
            for index in self.indices
        ]
        return torch.stack(noise).to(self.like)

    def uniform(self, start: int) -> Float[Tensor, "b 1 1 1"]:
        """Uniform numbers in 0 ... 1."""
        numbers = [
            torch.rand((1, 1, 1), generator=stream(self.seed, "attack radius", start, index))
            for index in self.indices
        ]
        return torch.stack(numbers).to(self.like)


@dataclass(frozen=True)
class PerturbationBall:
    """The perturbations that an attack may make."""

    attack: Attack
    mask: Bool[Tensor, "h w"] | None  # of frequencies

    @classmethod
    def of(cls, attack: Attack, pixels: Pixels) -> "PerturbationBall":
        """The ball of an attack on images of this size."""
        if attack.frequency is None:
            return cls(attack, None)
        size = (pixels.shape[-2], pixels.shape[-1])
        mask = band(size, attack.frequency, band_shape=attack.band_shape)
        if not mask.any():
            raise InputError(
                f"frequency must be the center of a band (width {BAND_WIDTH:g} π rad/pixel) "
                f"that holds frequencies of {size[0]}x{size[1]} images, got "
                f"{attack.frequency:g}"
            )
        return cls(attack, mask)

    def steepest_step(self, gradient: Pixels) -> Pixels:
        """The longest perturbation along a gradient: along its sign for the L∞ norm."""
        direction = gradient.sign() if self.attack.norm == "linf" else gradient
        return self._scaled(direction if self.mask is None else filtered(direction, self.mask))

    def random_start(self, noise: ImageNoise, start: int) -> Pixels:
        """A random perturbation, uniform in the ball."""
        normal = noise.normal(start)
        if self.attack.norm == "linf" and self.mask is None:
            # Uniform in every pixel: the normal distribution through its own integral.
            return self.attack.epsilon * torch.erf(normal / 2**0.5)
        dimensions = normal[0].numel() if self.attack.norm == "l2" else 1
        return self.steepest_step(normal) * noise.uniform(start) ** (1 / dimensions)

    def project(self, perturbation: Pixels, pixels: Pixels) -> Pixels:
        """The perturbation projected to the ball, and to pixels in 0 ... 1 without a band."""
        if self.attack.norm == "linf" and self.mask is None:
            inside = perturbation.clamp(-self.attack.epsilon, self.attack.epsilon)
        else:
            inside = torch.where(
                self._length(perturbation) > self.attack.epsilon,
                self._scaled(perturbation),
                perturbation,
            )
        return inside if self.mask is not None else (pixels + inside).clamp(0, 1) - pixels

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
        """The largest other logit minus that of the target: above 0 where misclassified."""
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
            raise InputError(
                f"{type(self.model).__name__} must pass a gradient to its images for attacks "
                "by gradient. Use random perturbations, or a model without no_grad and detach."
            )
        return LossValues(loss.detach(), gradient, _margin(logits.detach(), self.targets))

    def logits(self, pixels: Pixels) -> Float[Tensor, "b k"]:
        """Logits of the images with these pixels."""
        return forward(self.model, self.space.normalized(pixels)).double()

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
            raise InputError(
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
