"""The ledger: what a run has counted so far, and what an epoch comes to at its end."""

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from visprism.core.devices import Compute
from visprism.measure.outputs import Predictions, predict, uncertainty
from visprism.training.batch_padding import Even, pad_batches
from visprism.training.engine import Engine
from visprism.training.history import History

Test = Iterable[tuple[Tensor, Tensor]]  # images as the model wants them, and their classes

_COLUMNS = tuple(f.name for f in fields(History) if f.name not in ("provenance", "test_images"))


@dataclass
class EpochMetrics:
    """Sums of the epoch that is under way, and the rows of those before."""

    rows: list[list[float]] = field(default_factory=list)
    loss: float = 0.0  # summed over the images of the epoch so far
    seen: int = 0  # images of the epoch so far
    busy: float = 0.0  # seconds of updates in the epoch so far
    seconds: float = 0.0  # of the whole run, without breaks
    best: float = -1.0  # test accuracy
    tested: int = 0  # images of an evaluation
    _since: float = field(default_factory=time.perf_counter)

    def state(self) -> dict[str, Any]:
        """What to keep."""
        self.tick()
        return {name: value for name, value in vars(self).items() if name != "_since"}

    def load(self, state: dict[str, Any]) -> None:
        """Go on from what `state` gave."""
        vars(self).update(state)
        self._since = time.perf_counter()

    def tick(self, *, busy: bool = False) -> None:
        """Count the time since the last call, as that of updates or as another."""
        now = time.perf_counter()
        self.seconds += now - self._since
        self.busy += (now - self._since) * busy
        self._since = now

    def close_epoch(
        self, step: int, lr: float, tested: int, metrics: tuple[float, ...]
    ) -> dict[str, float]:
        """Make a row of the epoch, and begin the next; `tested` images gave its metrics."""
        self.tick()
        self.tested = tested or self.tested
        epoch, speed = len(self.rows) + 1, self.seen / max(self.busy, 1e-9)
        loss = self.loss / self.seen
        row = (epoch, step, self.seconds, lr, loss, speed, *metrics)
        self.rows.append([float(value) for value in row])
        self.loss, self.seen, self.busy = 0.0, 0, 0.0
        return dict(zip(_COLUMNS, self.rows[-1], strict=True))

    def latest(self) -> dict[str, float]:
        """The last row by name, as far as it is known."""
        last = self.rows[-1] if self.rows else []
        named = zip(_COLUMNS, last, strict=False)  # none before the first epoch has ended
        return {name: value for name, value in named if math.isfinite(value)}

    def history(self) -> History:
        """The rows as a table."""
        columns = np.array(self.rows, dtype=float).reshape(-1, len(_COLUMNS)).T
        epoch, step, *rest = columns
        whole = epoch.astype(int), step.astype(int)
        return History(*whole, *rest, test_images=self.tested)


def metrics_of(
    engine: Engine, test: Test | None, compute: Compute
) -> tuple[int, tuple[float, ...]]:
    """How many test images; accuracy, NLL and ECE, and the first two of the moving average."""
    unknown = float("nan")
    if engine.sharded and test is not None:
        test = pad_batches(test)
    if test is None:
        return 0, (unknown,) * 5
    count, own = _metrics(engine.model, test, compute)
    average = (unknown, unknown)
    if engine.average is not None:
        average = _metrics(engine.average.module, test, compute)[1][:2]
    return count, (*own, *average)


def _metrics(model: nn.Module, test: Test, compute: Compute) -> tuple[int, tuple[float, ...]]:
    trained = model.training
    model.eval()
    try:
        predictions = _predicted(model, test, compute)
        found = uncertainty(predictions, resamples=0)
    finally:
        model.train(trained)
    metrics = tuple(found.of(name) for name in ("accuracy", "nll", "ece"))
    return len(predictions), metrics


def _predicted(model: nn.Module, test: Test, compute: Compute) -> Predictions:
    predictions = predict(model, test, compute=compute)
    if not isinstance(test, Even):
        return predictions
    return predictions.subset(torch.arange(len(predictions) - test.added))
