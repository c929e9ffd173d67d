"""Metrics of an epoch: sums over its updates, and the evaluation after it."""

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from visprism.analyses.predictions.calibration import calibration
from visprism.core.processes import world_size
from visprism.core.provenance import Provenance
from visprism.core.run import Run
from visprism.loss.training_curvature import evaluation_mode
from visprism.passes.predict import predict
from visprism.training.engine import Engine
from visprism.training.history import History

Test = Iterable[tuple[Tensor, Tensor]]  # preprocessed images and their classes

_COLUMNS = tuple(f.name for f in fields(History) if f.name not in ("provenance", "test_images"))


@dataclass
class EpochMetrics:
    """Sums over the current epoch, and the rows of the history of the epochs before."""

    rows: list[list[float]] = field(default_factory=list)
    loss: float = 0.0  # sum over the images of the epoch so far
    seen: int = 0  # images of the epoch so far
    busy: float = 0.0  # seconds of updates of the epoch so far
    seconds: float = 0.0  # of the run, without interruptions
    best: float = -1.0  # highest test accuracy
    tested: int = 0  # images of an evaluation
    _since: float = field(default_factory=time.perf_counter)

    @property
    def mean_loss(self) -> float:
        """Mean loss over the images of the epoch so far."""
        return self.loss / self.seen

    @property
    def images_per_second(self) -> float:
        """Training speed in the epoch so far."""
        return self.seen / max(self.busy, 1e-9)

    @property
    def since_best(self) -> int:
        """Evaluations after the one with the highest accuracy."""
        column = _COLUMNS.index("test_accuracy")
        tested = [row[column] for row in self.rows if math.isfinite(row[column])]
        return len(tested) - 1 - tested.index(max(tested)) if tested else 0

    def state(self) -> dict[str, Any]:
        """All values that a resumed run needs."""
        self.tick()
        return {name: value for name, value in vars(self).items() if name != "_since"}

    def load(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        vars(self).update(state)
        self._since = time.perf_counter()

    def tick(self, *, busy: bool = False) -> None:
        """Add the time since the last call, to the time of updates if `busy`."""
        now = time.perf_counter()
        self.seconds += now - self._since
        self.busy += (now - self._since) * busy
        self._since = now

    def close_epoch(
        self, step: int, lr: float, tested: int, metrics: tuple[float, ...]
    ) -> dict[str, float]:
        """Append the row of the epoch and start the next; `tested` images gave its metrics."""
        self.tick()
        self.tested = tested or self.tested
        epoch = len(self.rows) + 1
        row = (epoch, step, self.seconds, lr, self.mean_loss, self.images_per_second, *metrics)
        self.rows.append([float(value) for value in row])
        self.loss, self.seen, self.busy = 0.0, 0, 0.0
        return dict(zip(_COLUMNS, self.rows[-1], strict=True))

    def latest(self) -> dict[str, float]:
        """The finite values of the last row, by name; empty before the first row."""
        last = self.rows[-1] if self.rows else []
        named = zip(_COLUMNS, last, strict=False)
        return {name: value for name, value in named if math.isfinite(value)}

    def history(self, provenance: Provenance | None = None) -> History:
        """The rows as a result."""
        values = np.array(self.rows, dtype=float).reshape(-1, len(_COLUMNS)).T
        columns = dict(zip(_COLUMNS, values, strict=True))
        columns |= {name: columns[name].astype(int) for name in ("epoch", "step")}
        return History(
            **columns, test_images=self.tested, provenance=provenance or Provenance()
        )


def evaluate(engine: Engine, test: Test | None, run: Run) -> tuple[int, tuple[float, ...]]:
    """Number of test images; accuracy, NLL and ECE; accuracy and NLL of the averaged weights.

    NaN without test images, and without an average.
    """
    missing = float("nan")
    if test is None:
        return 0, (missing,) * 5
    test = PaddedBatches(test) if engine.sharded else test
    count, metrics = _metrics(engine.model, test, run)
    average = (missing, missing)
    if engine.average is not None:
        average = _metrics(engine.average.module, test, run)[1][:2]
    return count, (*metrics, *average)


def _metrics(model: nn.Module, test: Test, run: Run) -> tuple[int, tuple[float, ...]]:
    with evaluation_mode(model):
        predictions = predict(model, test, run=replace(run, progress=None))
    if isinstance(test, PaddedBatches):
        predictions = predictions.subset(torch.arange(len(predictions) - test.padding))
    measured = calibration(predictions)
    return len(predictions), (measured.accuracy, measured.nll, measured.ece)


class PaddedBatches(Sequence):
    """Batches, padded by batches of one image so that every process has the same number.

    A forward pass of a sharded model needs all processes.
    """

    def __init__(self, batches: Any) -> None:
        self.batches = batches
        self.padding = -len(batches) % world_size()  # batches of one image, the last ones

    def __len__(self) -> int:
        """Number of batches with the padding."""
        return len(self.batches) + self.padding

    def __getitem__(self, index: Any) -> Any:
        """A batch, or the batches of a slice."""
        if isinstance(index, slice):
            return (self[number] for number in range(len(self))[index])
        if index < len(self.batches):
            return self.batches[index]
        images, targets = self.batches[0]
        return images[:1], targets[:1]
