"""Histories: the learning curves of a training."""

from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, PercentFormatter

from visprism.core.statistics import wilson
from visprism.drawing.registry import figure
from visprism.drawing.style import FAINT, KIND_COLORS, legend, tip
from visprism.estimates.findings import Finding
from visprism.estimates.text import number_of
from visprism.table.result import Result, column, result_type, scalar


@result_type("history")
class History(Result):
    """Training loss and test metrics of a run; one row per epoch."""

    epoch: np.ndarray = column("Epoch", "", "number of the epoch, from 1")
    step: np.ndarray = column("Step", "", "number of updates at the end of the epoch")
    seconds: np.ndarray = column(
        "Time", "s", "working time since the start, with evaluation and without interruptions"
    )
    lr: np.ndarray = column("Learning rate", "", "learning rate of the last step of the epoch")
    train_loss: np.ndarray = column(
        "Training loss", "nats", "mean over the augmented images of the epoch during training"
    )
    images_per_second: np.ndarray = column(
        "Training speed", "images/s", "training images per second, without evaluation"
    )
    test_accuracy: np.ndarray = column(
        "Test accuracy", "", "fraction of test images classified correctly; NaN: not evaluated"
    )
    test_nll: np.ndarray = column("Test NLL", "nats", "mean negative log-likelihood")
    test_ece: np.ndarray = column("Test ECE", "", "expected calibration error")
    ema_accuracy: np.ndarray = column(
        "Test accuracy (EMA)", "", "accuracy of the averaged weights; NaN: there is no average"
    )
    ema_nll: np.ndarray = column("Test NLL (EMA)", "nats", "NLL of the averaged weights")
    test_images: int = scalar(
        "Test images", "", "number of images of each evaluation", default=0
    )

    @property
    def evaluated(self) -> bool:
        """Whether the model was evaluated after any epoch."""
        return bool(np.isfinite(self.test_accuracy).any())

    @property
    def last_evaluation(self) -> int:
        """Row of the last epoch with an evaluation."""
        return int(np.flatnonzero(np.isfinite(self.test_accuracy))[-1])

    def accuracy_interval(self, row: int) -> tuple[float, float]:
        """The 95% Wilson interval of a test accuracy over the test images."""
        correct = round(float(self.test_accuracy[row]) * self.test_images)
        low, high = wilson(np.array([correct]), np.array([self.test_images]))
        return float(low[0]), float(high[0])

    def findings(self) -> tuple[Finding, ...]:
        """Training loss and speed; accuracy, NLL and ECE on the test images."""
        epochs, speed = number_of(int(self.epoch[-1]), "epoch"), self.images_per_second.mean()
        training = Finding(
            f"training loss {self.train_loss[-1]:.3g} nats after {epochs}, {speed:.0f} images/s"
        )
        if not self.evaluated:
            return training, Finding("not evaluated: there are no test images")
        row, best = self.last_evaluation, int(np.nanargmax(self.test_accuracy))
        low, high = self.accuracy_interval(row)
        findings = [
            f"test accuracy {self.test_accuracy[row]:.1%} [{low:.1%}, {high:.1%}] "
            f"({self.test_images} test images, 95% interval), "
            f"NLL {self.test_nll[row]:.3g}, ECE {self.test_ece[row]:.1%}"
        ]
        if best != row:
            findings.append(
                f"highest test accuracy {self.test_accuracy[best]:.1%} after epoch "
                f"{self.epoch[best]}, selected on the test images and therefore optimistic"
            )
        if np.isfinite(self.ema_accuracy[row]):
            findings.append(
                f"averaged weights: test accuracy {self.ema_accuracy[row]:.1%}, "
                f"NLL {self.ema_nll[row]:.3g}"
            )
        return training, *map(Finding, findings)


TRAIN, TEST, AVERAGE = (KIND_COLORS[kind] for kind in ("conv", "attention", "mlp"))
_DASHES = {TRAIN: "-", TEST: (0, (5, 1.5)), AVERAGE: (0, (1, 1))}


@figure(width=2.7, height=2.1)
def _(result: History, ax: Axes, *, quantity: Literal["loss", "accuracy"] = "loss") -> Axes:
    """Training and test loss, or test accuracy, by epoch."""
    if quantity == "loss":
        curves = {"training": TRAIN, "test": TEST, "test, EMA": AVERAGE}
        columns = result.train_loss, result.test_nll, result.ema_nll
        ax.set(ylabel="Loss (nats)")
    else:
        curves = {"test": TEST, "test, EMA": AVERAGE}
        columns = result.test_accuracy, result.ema_accuracy
        ax.set(ylabel=History.infos()["test_accuracy"].heading)
        ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=None))
    marker = "o" if len(result) < 30 else None
    for (name, color), values in zip(curves.items(), columns, strict=True):
        finite = np.isfinite(values)
        if finite.any():
            ax.plot(
                result.epoch[finite],
                values[finite],
                color=color,
                linestyle=_DASHES[color],
                linewidth=1.2,
                marker=marker,
                markersize=2.5,
                label=name,
                gid=tip(f"{name} · {values[finite][-1]:.4g} after the last epoch"),
            )
    if ax.get_legend_handles_labels()[1]:
        legend(ax, fontsize="small")
    else:
        ax.text(0.5, 0.5, "not evaluated", transform=ax.transAxes, ha="center", color=FAINT)
        ax.plot([], [])
    ax.set(xlabel=History.infos()["epoch"].heading)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    return ax
