"""`visprism.Monitor` as a callback of the Trainer of Transformers."""

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn
from torch.optim import Optimizer
from transformers import (
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from visprism.core.loggers import Draw, log_arrays
from visprism.study.monitor import Monitor

# Attributes of callbacks of the Trainer: what they log to, or its module.
_RUNS = ("tb_writer", "_wandb", "_trackio", "_ml_flow")


def _log_arrays(trainer: Trainer, step: int, draw: Draw) -> None:
    """Give histograms and pictures to what the trainer reports to and takes them."""
    for callback in trainer.callback_handler.callbacks:
        for run in filter(None, (vars(callback).get(name) for name in _RUNS)):
            log_arrays(run, step, draw, axis="train/global_step")


class MonitorCallback(TrainerCallback):
    """Measures the network after updates, and logs through what the trainer reports to.

    Attach it with ``trainer.add_callback(MonitorCallback(monitor, trainer))``.

    Args:
        monitor: what is measured, how often, and where it is stored.
        trainer: whose logs receive the numbers; None: the loggers of the monitor only.
        network: gives the network that is measured, such as the moving average that another
            callback keeps, or a part; by default the trained model itself.
    """

    def __init__(
        self,
        monitor: Monitor,
        trainer: Trainer | None = None,
        network: Callable[[nn.Module], nn.Module] = lambda model: model,
    ) -> None:
        self.monitor, self.network = monitor, network
        if trainer is not None:
            monitor.add_logger(
                lambda _, values: trainer.log(dict(values)), partial(_log_arrays, trainer)
            )

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: nn.Module | None = None,
        optimizer: Optimizer | None = None,
        **kwargs: Any,
    ) -> None:
        """Measure if it is due."""
        assert model is not None  # the trainer gives it
        logged = next((one for one in reversed(state.log_history) if "loss" in one), {})
        numbers = {n: float(logged[n]) for n in ("loss", "learning_rate") if n in logged}
        inner = getattr(optimizer, "optimizer", optimizer)  # within Accelerate's optimizer
        due = control.should_log
        self.monitor.step(self.network(model), state.global_step, inner, numbers)
        control.should_log = due  # which each log of the trainer unsets

    def on_train_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """End the loggers of the monitor."""
        self.monitor.close()
