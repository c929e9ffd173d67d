"""Watching: losses and weights are finite, or the run ends and says where."""

import math
from collections.abc import Callable

import torch

from visprism.core.errors import InputError
from visprism.core.processes import gather
from visprism.data import Feed
from visprism.training.engine import Engine
from visprism.training.epoch_metrics import EpochMetrics
from visprism.training.sharding import local


class Watch:
    """Looks at losses that may not have been computed yet, and at weights.

    Args:
        engine: whose weights.
        ledger: adds the losses up.
        train: gives the batches.
        kept: what an error says of the last good state.
    """

    def __init__(
        self, engine: Engine, ledger: EpochMetrics, train: Feed, kept: Callable[[], str]
    ) -> None:
        self._engine, self._ledger, self._train, self._kept = engine, ledger, train, kept
        self._waiting: list[tuple[int, float, torch.Tensor, int]] = []
        self._last = (0, 0.0)  # the step that was made last, and its learning rate

    def add(self, step: int, lr: float, total: torch.Tensor, images: int) -> None:
        """Remember the summed loss of a step, to be looked at later."""
        self._waiting.append((step, lr, total, images))
        self._last = step, lr

    def losses(self) -> None:
        """Add up the losses that wait.

        Raises:
            InputError: if one is not finite.
        """
        for step, lr, total, images in self._waiting:
            loss = total.item() / images
            if not math.isfinite(loss):
                raise InputError(f"the loss is {loss} at {self._at(step, lr)}{self._way_out()}")
            self._ledger.loss += loss * images
            self._ledger.seen += images
        self._waiting.clear()

    def all(self) -> None:
        """Add up the losses that wait, and look at the weights that the last step has left.

        Raises:
            InputError: if a loss or a weight is not finite.
        """
        self.losses()
        bad = _not_finite(self._engine)
        if bad is not None:
            raise InputError(
                f"the weight {bad} is not finite after {self._at(*self._last)}{self._way_out()}"
            )

    @property
    def where(self) -> str:
        """The step that was made last, in words."""
        return self._at(*self._last)

    def _at(self, step: int, lr: float) -> str:
        epoch, batch = divmod(step, self._train.steps)
        total = self._engine.recipe.epochs * self._train.steps
        return (
            f"step {step + 1} of {total} (epoch {epoch + 1}, batch {batch + 1}), learning rate "
            f"{lr:.2g}"
        )

    def _way_out(self) -> str:
        return f"; try a lower lr, a longer warmup or a clip{self._kept()}"


def _not_finite(engine: Engine) -> str | None:
    """The name of a parameter, or of BatchNorm's running statistics, that is not finite."""
    tensors = {
        name: local(tensor.detach())
        for name, tensor in engine.model.state_dict(keep_vars=True).items()
        if tensor.requires_grad or name.endswith(("running_mean", "running_var"))
    }
    sums = [tensor.abs().amax() for tensor in tensors.values() if tensor.numel()]
    found = None
    # One look, as each would wait for a GPU.
    if sums and not bool(torch.stack(sums).isfinite().all()):
        found = next(name for name, t in tensors.items() if not bool(t.isfinite().all()))
    return next(filter(None, gather(found)), None) if engine.sharded else found
