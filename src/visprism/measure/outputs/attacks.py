"""Attacks: small changes of pixels that raise a model's loss.

All work on pixels in 0 ... 1 and stay there; one in a band of frequencies is not clipped, which
would take it out of the band.

Source: Goodfellow et al. (2015), Explaining and harnessing adversarial examples; Madry et al.
(2018), Towards deep learning models resistant to adversarial attacks.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn import functional

from visprism.anatomy import forward
from visprism.core.errors import InputError
from visprism.measure.outputs.perturbation_ball import Attack, Draws, PerturbationBall, Pixels
from visprism.measure.outputs.pixel_space import PixelSpace


def attacked(
    model: nn.Module,
    pixels: Pixels,
    targets: Int64[Tensor, " b"],
    attack: Attack,
    space: PixelSpace,
    *,
    seed: int = 0,
    numbers: range | None = None,
) -> Pixels:
    """The pixels after an attack.

    An image's randomness depends on the seed and its number. Costs a pass forward and back for
    each step and start, and with PGD one more for each start.

    Args:
        model: in evaluation mode; its parameters get no gradients.
        pixels: in 0 ... 1.
        targets: whose loss is raised.
        attack: which, and how strong.
        space: how pixels become what the model takes.
        seed: of random starts and signs.
        numbers: of the images in the data.

    Raises:
        InputError: if the images have no frequency in the attack's band, or the model passes no
            gradient back to them.
    """
    rng = Draws(pixels, seed, numbers or range(len(pixels)))
    limits = PerturbationBall.of(attack, pixels)
    if attack.name == "random":
        return pixels + limits.nearest(limits.steepest_step(rng.normal(0)), pixels)
    loss = _Loss(model, space, targets)
    if attack.name == "fgsm":
        change = limits.steepest_step(loss.gradient(pixels))
        return pixels + limits.nearest(change, pixels)
    best = pixels
    highest = torch.full((len(pixels),), -torch.inf, device=pixels.device)
    for start in range(attack.restarts):
        change = limits.nearest(limits.random_start(rng, start), pixels)
        for _ in range(attack.steps):
            step = limits.steepest_step(loss.gradient(pixels + change))
            change = change + step * (attack.stride / attack.epsilon)
            change = limits.nearest(change, pixels)
        reached = loss.each(pixels + change)
        better = reached > highest
        highest = torch.where(better, reached, highest)
        best = torch.where(better[:, None, None, None], pixels + change, best)
    return best


@dataclass(frozen=True)
class _Loss:
    """The negative log-likelihood of pixels."""

    model: nn.Module
    space: PixelSpace
    targets: Int64[Tensor, " b"]

    def each(self, pixels: Pixels) -> Float[Tensor, " b"]:
        with torch.no_grad():
            return self._of(pixels)

    def gradient(self, pixels: Pixels) -> Pixels:
        with torch.enable_grad():
            free = pixels.detach().requires_grad_()
            loss = self._of(free).sum()
            found = None
            if loss.requires_grad:
                (found,) = torch.autograd.grad(loss, free, allow_unused=True)
        if found is None:
            raise InputError(
                f"{type(self.model).__name__} passes no gradient back to its image, which FGSM "
                "and PGD need; take random changes, or a model without no_grad and detach"
            )
        return found

    def _of(self, pixels: Pixels) -> Float[Tensor, " b"]:
        logits = forward(self.model, self.space.standardised(pixels)).float()
        return functional.cross_entropy(logits, self.targets, reduction="none")
