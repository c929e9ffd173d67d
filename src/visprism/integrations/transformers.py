"""`visprism.Monitor` as a callback of the Trainer of Transformers."""

from collections.abc import Callable, Mapping
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

from visprism.study.monitor import Monitor
from visprism.training.vitals import TrainingStoppedError


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
            monitor.add_logger(lambda _, values: trainer.log(dict(values)))

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Tell the monitor the number of updates."""
        self.monitor.updates = self.monitor.updates or state.max_steps

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Measure if it is due, unless the trainer logs its loss after this update."""
        if not control.should_log:
            self._step(state, control, {}, **kwargs)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Measure if it is due, with the loss that is logged: its mean since the last log."""
        logged = logs or {}
        if "loss" in logged:  # not what the monitor or an evaluation logs
            numbers = {n: float(logged[n]) for n in ("loss", "learning_rate") if n in logged}
            self._step(state, control, numbers, **kwargs)

    def on_train_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Close the monitor."""
        self.monitor.close()

    def _step(
        self,
        state: TrainerState,
        control: TrainerControl,
        numbers: Mapping[str, float],
        *,
        model: nn.Module,
        optimizer: Optimizer | None = None,
        **kwargs: Any,
    ) -> None:
        inner = getattr(optimizer, "optimizer", optimizer)  # within Accelerate's optimizer
        try:
            self.monitor.step(self.network(model), state.global_step, inner, numbers)
        except TrainingStoppedError:  # the monitor has said why
            control.should_training_stop = True
