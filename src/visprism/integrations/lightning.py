"""`visprism.Monitor` as a callback of the Trainer of Lightning."""

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from torch import nn

from visprism.study.monitor import Monitor
from visprism.training.vitals import TrainingStoppedError


class MonitorCallback(Callback):
    """Measures the network after updates, and logs through the loggers of the trainer.

    Args:
        monitor: what is measured, how often, and where it is stored.
        network: gives the network of the module, such as ``lambda module: module.net``, or its
            moving average; by default the module itself, whose ``forward`` returns logits.
    """

    def __init__(
        self,
        monitor: Monitor,
        network: Callable[[LightningModule], nn.Module] = lambda module: module,
    ) -> None:
        self.monitor, self.network = monitor, network
        self._step = 0
        self._trainer: Trainer | None = None
        monitor.add_logger(self._log)

    def _log(self, step: int, values: Mapping[str, float]) -> None:
        """Give numbers to the loggers of the trainer."""
        assert self._trainer is not None  # it has called the monitor
        for logger in self._trainer.loggers:
            logger.log_metrics(dict(values), step=step)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """A resumed training goes on after its last update."""
        self._step, updates = trainer.global_step, trainer.estimated_stepping_batches
        if self.monitor.updates is None and isfinite(updates):
            self.monitor.updates = int(updates)

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Measure if it is due; batches of one update count once."""
        if trainer.global_step == self._step:
            return
        self._step, self._trainer = trainer.global_step, trainer
        numbers = {n: float(v) for n, v in trainer.callback_metrics.items()}
        if isinstance(outputs, Mapping) and "loss" in outputs:  # under whatever name it logs it
            # of which Lightning takes the part of each batch
            numbers["loss"] = float(outputs["loss"]) * trainer.accumulate_grad_batches
        network = self.network(pl_module)
        try:
            self.monitor.step(network, self._step, trainer.optimizers, numbers)
        except TrainingStoppedError:  # the monitor has said why
            trainer.should_stop = True

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Close the monitor."""
        self.monitor.close()

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        """End the loggers of the monitor, without a measurement."""
        self.monitor.__exit__(type(exception))
