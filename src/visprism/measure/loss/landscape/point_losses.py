"""Losses of single images at one point of a landscape."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import nn

from visprism.anatomy import forward
from visprism.core.devices import Compute
from visprism.measure.loss.cached_batches import CachedBatches
from visprism.measure.loss.losses import Loss, losses_of

Tick = Callable[[], object]  # called before each batch: progress and deadline

COLUMNS = ("nll", "nll_error", "rise", "rise_error", "accuracy", "accuracy_error")


@dataclass(frozen=True)
class PointLosses:
    """Loss and correctness of each image."""

    nll: Float[np.ndarray, " n"]
    correct: Float[np.ndarray, " n"]  # 1 where the class is correct, else 0
    classes: int

    def rises(self, origin: "PointLosses") -> Float[np.ndarray, " n"]:
        """The increase of each image's loss over that at the origin."""
        with np.errstate(invalid="ignore", over="ignore"):  # losses may overflow
            return self.nll - origin.nll

    def summary(self, origin: "PointLosses") -> tuple[float, ...]:
        """Means over images, each followed by its standard error, in the order of `COLUMNS`."""
        values = []
        with np.errstate(invalid="ignore", over="ignore"):
            for quantity in (self.nll, self.rises(origin), self.correct):
                n = len(quantity)
                error = quantity.std(ddof=1) / n**0.5 if n > 1 else np.nan
                values += [float(quantity.mean()), float(error)]
        return tuple(values)


@torch.no_grad()
def point_losses(
    model: nn.Module, samples: CachedBatches, loss: Loss, compute: Compute, tick: Tick
) -> PointLosses:
    """The loss of each image, and whether its class is correct.

    For targets that are probabilities, the most probable class counts as the correct one.
    """
    outputs = []
    with compute.autocast():  # for this point alone: it caches the weights that it has cast
        for images, _ in samples.batches:
            tick()
            outputs.append(forward(model, images))
    logits = torch.cat(outputs)
    # Double precision where available: a difference of two losses may be tiny.
    logits = logits.float() if logits.device.type == "mps" else logits.double()
    targets = torch.cat([targets for _, targets in samples.batches])
    soft = targets.is_floating_point()
    nll = losses_of(loss, logits, targets.to(logits) if soft else targets)
    correct = logits.argmax(1) == (targets.argmax(1) if soft else targets)
    return PointLosses(
        nll.double().cpu().numpy(), correct.double().cpu().numpy(), logits.shape[1]
    )
