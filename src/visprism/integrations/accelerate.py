"""`visprism.Monitor` in a loop of Accelerate."""

from collections.abc import Mapping

from accelerate import Accelerator
from torch import nn
from torch.optim import Optimizer

from visprism.study.monitor import Monitor
from visprism.study.study import Study


class AcceleratedMonitor:
    """A monitor of a model that an accelerator has prepared; logs to its trackers.

    Args:
        monitor: what is measured, how often, and where it is stored.
        accelerator: that has prepared the model and the optimizer.
    """

    def __init__(self, monitor: Monitor, accelerator: Accelerator) -> None:
        self.monitor, self.accelerator = monitor, accelerator
        monitor.add_logger(lambda step, values: accelerator.log(dict(values), step=step))

    def step(
        self,
        model: nn.Module,
        step: int,
        optimizer: Optimizer | None = None,
        metrics: Mapping[str, float] | None = None,
    ) -> Study | None:
        """Measure if it is due; passes that only accumulate gradients do not count.

        See `Monitor.step`.
        """
        if not self.accelerator.sync_gradients:
            return None
        inner = getattr(optimizer, "optimizer", optimizer)
        network = self.accelerator.unwrap_model(model, keep_fp32_wrapper=True)
        return self.monitor.step(network, step, inner, metrics)

    def close(self) -> None:
        """Close the monitor; call it in each process, before ``accelerator.end_training``."""
        self.monitor.close()
