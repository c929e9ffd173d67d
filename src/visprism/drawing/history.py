"""Figures of training histories: learning curves."""

from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, PercentFormatter

from visprism.drawing.registry import figure
from visprism.drawing.style import FAINT, KIND_COLORS, tip
from visprism.results.training import History

TRAIN, TEST, AVERAGE = (KIND_COLORS[kind] for kind in ("conv", "attention", "mlp"))
_DASHES = {TRAIN: "-", TEST: (0, (5, 1.5)), AVERAGE: (0, (1, 1))}


@figure(width=2.7, height=2.1)
def _(result: History, ax: Axes, *, quantity: Literal["loss", "accuracy"] = "loss") -> Axes:
    """Training and test loss, or test accuracy, by epoch."""
    if quantity == "loss":
        curves = {
            "training": (result.train_loss, TRAIN),
            "test": (result.test_nll, TEST),
            "test, EMA": (result.ema_nll, AVERAGE),
        }
        ax.set(ylabel="Loss (nats)")
    else:
        curves = {
            "test": (result.test_accuracy, TEST),
            "test, EMA": (result.ema_accuracy, AVERAGE),
        }
        ax.set(ylabel=History.infos()["test_accuracy"].heading)
        ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=None))
    marker = "o" if len(result) < 30 else None
    for name, (values, color) in curves.items():
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
        ax.legend(fontsize="small")
    else:
        ax.text(0.5, 0.5, "not evaluated", transform=ax.transAxes, ha="center", color=FAINT)
        ax.plot([], [])
    ax.set(xlabel=History.infos()["epoch"].heading)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    return ax
