"""Attacks and their perturbation balls: which attack, and which perturbations it may make."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from visprism.core.errors import InputError
from visprism.core.rng import stream
from visprism.analyses.predictions.bands import band, check_band, check_band_shape, filtered
from visprism.results.perturbations import BAND_WIDTH

ATTACKS = ("apgd", "apgd-t", "fgsm", "pgd", "random")
NORMS = ("linf", "l2")
LOSSES = ("cross-entropy", "margin", "dlr")

_ZERO = 1e-30  # a gradient that is not longer has no direction

Pixels = Float[Tensor, "b c h w"]


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

    name: str = "fgsm"
    epsilon: float = 8 / 255  # norm of the perturbation, in pixels of 0 ... 1
    norm: str = "linf"
    loss: str = "cross-entropy"  # or "margin" or "dlr", which ignore the logit scale
    steps: int = 10  # of PGD and APGD
    step_size: float | None = None  # of PGD; None: 2.5 epsilon / steps
    restarts: int = 1  # of PGD and APGD
    target_classes: int = 9  # of "apgd-t"; at most all other classes
    frequency: float | None = None  # center of a band in π rad/pixel; None: all frequencies
    band_shape: str = "square"

    def __post_init__(self) -> None:
        for field, value, values in (
            ("name", self.name, ATTACKS),
            ("norm", self.norm, NORMS),
            ("loss", self.loss, LOSSES),
        ):
            if value not in values:
                raise InputError(f"{field} must be one of {', '.join(values)}, got {value!r}")
        check_band_shape(self.band_shape)
        if not 0 < self.epsilon < inf:
            raise InputError(f"epsilon must be finite and positive, got {self.epsilon}")
        if self.norm == "linf" and self.epsilon > 1:
            raise InputError(
                f"epsilon must be at most 1, as pixels are in 0 ... 1, got {self.epsilon}. "
                "Write 4 of 255 gray levels as 4/255."
            )
        for field in ("steps", "restarts", "target_classes"):
            if getattr(self, field) < 1:
                raise InputError(f"{field} must be at least 1, got {getattr(self, field)}")
        if self.name == "apgd-t" and self.loss != "dlr":
            raise InputError(f"loss must be 'dlr' for apgd-t, got {self.loss!r}")
        if self.step_size is not None and not 0 < self.step_size < inf:
            raise InputError(f"step_size must be finite and positive, got {self.step_size}")
        if self.frequency is not None:
            check_band(self.frequency)

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
    def iterative(self) -> bool:
        """Whether it takes several steps, from random starts."""
        return self.name not in ("fgsm", "random")

    @property
    def stride(self) -> float:
        """Length of a step of PGD."""
        # All steps of Madry et al. together reach 2.5 times as far as the ball.
        return 2.5 * self.epsilon / self.steps if self.step_size is None else self.step_size


# The losses of each attack; those of "pgd" are chosen.
_LOSSES_OF = {"apgd": ("cross-entropy", "dlr"), "apgd-t": ("dlr",)}


def attack_grid(
    names: Sequence[str],
    epsilons: Sequence[float],
    *,
    losses: Sequence[str] = ("cross-entropy", "margin"),
    frequencies: Sequence[float] = (),
    norm: str = "linf",
    steps: int = 10,
    restarts: int = 1,
    target_classes: int = 9,
) -> list[Attack]:
    """Every attack at every size: PGD with each loss, the others with their own.

    APGD maximizes the cross-entropy and the DLR loss, targeted APGD the targeted DLR loss; the
    others the cross-entropy.

    Args:
        names: of attacks.
        epsilons: norms of the perturbation.
        losses: that PGD maximizes.
        frequencies: centers of frequency bands; none: all frequencies together.
        norm: "linf" or "l2".
        steps: of PGD and APGD.
        restarts: of PGD and APGD.
        target_classes: of targeted APGD.
    """
    return [
        Attack(
            name,
            epsilon,
            norm,
            loss,
            steps=steps,
            restarts=restarts,
            target_classes=target_classes,
            frequency=frequency,
        )
        for name in names
        for loss in (losses if name == "pgd" else _LOSSES_OF.get(name, LOSSES[:1]))
        for epsilon in epsilons
        for frequency in (frequencies or (None,))
    ]


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
