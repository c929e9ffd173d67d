"""Evaluation of a model at points of planes: shared by surfaces and circles."""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from typing import ClassVar

import numpy as np
from torch import nn

from visprism.anatomy import check_repeatable
from visprism.anatomy.trace.forward import as_written
from visprism.core.errors import InputError
from visprism.core.run import Run
from visprism.measure.inference.batch_norm_folding import foldable, folded
from visprism.measure.loss.batch_norm import BatchNorm, preserved_statistics, reestimate
from visprism.measure.loss.cached_batches import CachedBatches
from visprism.measure.loss.landscape.displaced_weights import channels_last, displaced_weights
from visprism.measure.loss.landscape.planes import Plane
from visprism.measure.loss.landscape.point_losses import PointLosses, Tick, point_losses
from visprism.measure.loss.losses import Loss

Point = tuple[int, float, float]  # index of the plane, a, b


@dataclass(frozen=True)
class Evaluation:
    """The losses of a model on fixed samples, with one treatment of BatchNorm."""

    model: nn.Module
    samples: CachedBatches
    loss: Loss
    batch_norm: BatchNorm
    run: Run

    supported: ClassVar[tuple[str, ...]] = ("frozen", "reestimated")

    @property
    def ticks_per_point(self) -> int:
        """Forward passes of a batch for each point."""
        return len(self.samples.batches) * (2 if self.batch_norm == "reestimated" else 1)

    def losses(self, tick: Tick) -> PointLosses:
        """The losses at the present weights."""
        if self.batch_norm == "reestimated":
            reestimate(self.model, self.samples, self.run.compute, tick)
        return point_losses(self.model, self.samples, self.loss, self.run.compute, tick)

    def origin(self, tick: Tick) -> PointLosses:
        """The losses at the model's weights."""
        losses = self.losses(tick)
        if not np.isfinite(losses.nll).all():
            raise InputError(
                "the loss of the model's weights must be finite, got "
                f"{losses.nll.mean()}. Check the weights, the images and the precision."
            )
        return losses

    def points(
        self, planes: Sequence[Plane], points: Iterable[tuple[int, Point]], tick: Tick
    ) -> Generator[tuple[int, PointLosses], None, None]:
        """The losses at numbered points, those of one plane in succession."""
        for pair, numbered in groupby(points, key=lambda item: item[1][0]):
            plane = planes[pair]
            with displaced_weights(self.model, plane.first, plane.second) as move:
                for number, (_, a, b) in numbered:
                    move(a, b)
                    yield number, self.losses(tick)

    @contextmanager
    def prepared(self) -> Iterator["Evaluation"]:
        """Inside, the model is on the device in its fastest form; on exit it is restored."""
        with ExitStack() as stack:
            stack.enter_context(self.run.compute.borrow(self.model))
            stack.enter_context(as_written())
            stack.enter_context(preserved_statistics(self.model))
            trial = self.samples.first_images()
            check_repeatable(self.model, trial)
            samples = stack.enter_context(channels_last(self.model, self.samples))
            if self.batch_norm == "frozen":
                pairs = foldable(self.model, samples.first_images())
                stack.enter_context(folded(self.model, pairs))
            yield replace(self, samples=samples)


def loss_name(loss: Callable) -> str:
    """Name of a loss function, for the result."""
    return getattr(loss, "__name__", type(loss).__name__)
