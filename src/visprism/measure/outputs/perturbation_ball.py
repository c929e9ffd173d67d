"""PerturbationBall: which attack, and the changes of pixels that it may make."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from visprism.core.errors import InputError
from visprism.core.rng import stream
from visprism.measure.outputs.bands import WIDTH, band, check_band, check_ring, filtered

ATTACKS = ("fgsm", "pgd", "random")
NORMS = ("linf", "l2")

_FLAT = 1e-30  # longest gradient that has no direction

Pixels = Float[Tensor, "b c h w"]


@dataclass(frozen=True)
class Attack:
    """How pixels are changed: by how much at most, and to what end.

    "fgsm"    one step along the gradient of the loss: its sign, or its direction for "l2"
    "pgd"     many steps, each followed by the nearest change that is allowed, from several
              random starts, of which the one with the highest loss counts for each image
    "random"  no gradient: random signs, or a random direction for "l2"

    Raises:
        InputError: if the attack, its norm or its band is none, or a number makes no sense.
    """

    name: str = "fgsm"
    epsilon: float = 8 / 255  # the largest change of a pixel, or the norm of all changes
    norm: str = "linf"
    steps: int = 10  # of PGD
    step_size: float | None = None  # of PGD; by default 2.5 epsilon / steps
    restarts: int = 1  # of PGD
    frequency: float | None = None  # middle of a band, in pi rad/pixel; None: all
    ring: str = "square"

    def __post_init__(self) -> None:
        if self.name not in ATTACKS:
            raise InputError(f"unknown attack {self.name!r}; wants {', '.join(ATTACKS)}")
        if self.norm not in NORMS:
            raise InputError(f"norm is {self.norm!r}; wants {' or '.join(NORMS)}")
        check_ring(self.ring)
        if not self.epsilon > 0 or self.steps < 1 or self.restarts < 1:
            raise InputError(
                f"epsilon is {self.epsilon}, steps {self.steps}, restarts {self.restarts}; "
                "wants a change above 0, in pixels of 0 ... 1, and at least 1 step and start"
            )
        if self.norm == "linf" and self.epsilon > 1:
            raise InputError(
                f"epsilon is {self.epsilon}, and pixels are 0 ... 1; four steps of 255 are "
                "written 4/255"
            )
        if self.step_size is not None and not self.step_size > 0:
            raise InputError(f"step_size is {self.step_size}; wants a length above 0")
        if self.frequency is not None:
            check_band(self.frequency)

    @property
    def gradients(self) -> int:
        """How many of the loss it takes."""
        return {"random": 0, "fgsm": 1, "pgd": self.steps * self.restarts}[self.name]

    @property
    def stride(self) -> float:
        """How far a step of PGD goes."""
        # Madry et al. let all steps together reach 2.5 times as far as allowed.
        return 2.5 * self.epsilon / self.steps if self.step_size is None else self.step_size


@dataclass(frozen=True)
class Draws:
    """Random numbers of each image, whatever the batch."""

    like: Pixels
    seed: int
    numbers: range

    def normal(self, start: int) -> Pixels:
        """Gaussian noise."""
        shape = self.like.shape[1:]
        drawn = [
            torch.randn(shape, generator=stream(self.seed, "attack", start, n))
            for n in self.numbers
        ]
        return torch.stack(drawn).to(self.like)

    def share(self, start: int) -> Float[Tensor, "b 1 1 1"]:
        """Uniform numbers in 0 ... 1."""
        drawn = [
            torch.rand((1, 1, 1), generator=stream(self.seed, "attack radius", start, n))
            for n in self.numbers
        ]
        return torch.stack(drawn).to(self.like)


@dataclass(frozen=True)
class PerturbationBall:
    """The changes that an attack may make."""

    attack: Attack
    mask: Tensor | None  # of frequencies

    @classmethod
    def of(cls, attack: Attack, pixels: Pixels) -> "PerturbationBall":
        """Those of an attack on images of this size.

        Raises:
            InputError: if they have no frequency in the attack's band.
        """
        if attack.frequency is None:
            return cls(attack, None)
        size = (pixels.shape[-2], pixels.shape[-1])
        mask = band(size, attack.frequency, ring=attack.ring)
        if not mask.any():
            raise InputError(
                f"images of {size[0]}x{size[1]} have no frequency in the band at "
                f"{attack.frequency:g} pi of width {WIDTH:g} pi; take another band"
            )
        return cls(attack, mask)

    def steepest_step(self, towards: Pixels) -> Pixels:
        """The longest change along a direction: by its sign, or by itself for "l2"."""
        if self.attack.norm == "linf":
            change = towards.sign()
            return self._scaled(change if self.mask is None else filtered(change, self.mask))
        return self._scaled(towards if self.mask is None else filtered(towards, self.mask))

    def random_start(self, rng: Draws, start: int) -> Pixels:
        """A random change, as likely random_start within the norm."""
        normal = rng.normal(start)
        if self.attack.norm == "linf" and self.mask is None:
            # Uniform in every pixel: the normal distribution through its own integral.
            return self.attack.epsilon * torch.erf(normal / 2**0.5)
        dimensions = normal[0].numel() if self.attack.norm == "l2" else 1
        return self.steepest_step(normal) * rng.share(start) ** (1 / dimensions)

    def nearest(self, change: Pixels, pixels: Pixels) -> Pixels:
        """A change within the norm; it leaves pixels in 0 ... 1 unless it has a band."""
        if self.attack.norm == "linf" and self.mask is None:
            change = change.clamp(-self.attack.epsilon, self.attack.epsilon)
        else:
            change = torch.where(
                self._length(change) > self.attack.epsilon, self._scaled(change), change
            )
        return change if self.mask is not None else (pixels + change).clamp(0, 1) - pixels

    def _scaled(self, change: Pixels) -> Pixels:
        # No direction at all, as of a loss that is flat, stays none.
        return change * (self.attack.epsilon / self._length(change).clamp(min=_FLAT))

    def _length(self, change: Pixels) -> Float[Tensor, "b 1 1 1"]:
        if self.attack.norm == "linf":
            return change.abs().amax((1, 2, 3), keepdim=True)
        return change.flatten(1).norm(dim=1)[:, None, None, None]
