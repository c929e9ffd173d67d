"""Figures of the curvature during training: eigenvalues with their threshold, or alignment."""

from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, PercentFormatter

from visprism.drawing.registry import figure
from visprism.drawing.style import FAINT, INK, KIND_COLORS, tip
from visprism.results.training_curvature import (
    MATRIX_LABELS,
    POINT_LABELS,
    TrainingCurvature,
)

_COLORS = {
    "hessian": KIND_COLORS["conv"],
    "preconditioned": KIND_COLORS["attention"],
}
_DASHES = {"weights": "-", "perturbed": (0, (1, 1))}


@figure(width=3.0, height=2.2, share=False)
def _(
    result: TrainingCurvature,
    ax: Axes,
    *,
    quantity: Literal["eigenvalue", "alignment"] = "eigenvalue",
) -> Axes:
    """Leading eigenvalues by step with the stability threshold; or the gradient's alignment."""
    for matrix, point, rows in result.leading():
        if quantity == "alignment":
            top = (result.matrix == matrix) & (result.point == point)
            rows = result.select(top & (result.rank == result.rank.max()))
        values = getattr(rows, quantity)
        name = f"{MATRIX_LABELS[matrix]}{POINT_LABELS[point]}"
        ax.plot(
            rows.step, values, color=_COLORS[matrix], linestyle=_DASHES[point], linewidth=1.2,
            marker="o" if len(rows) < 30 else None, markersize=2.5, label=name,
            gid=tip(f"{name} · {values[-1]:.4g} after step {rows.step[-1]}"),
        )  # fmt: skip
        finite = np.isfinite(rows.threshold)
        if quantity == "eigenvalue" and point == "weights" and finite.any():
            ax.plot(
                rows.step[finite], rows.threshold[finite], color=INK, linestyle=(0, (5, 1.5)),
                linewidth=0.8, label="stability threshold",
            )  # fmt: skip
    if not len(result):
        ax.text(0.5, 0.5, "not measured", transform=ax.transAxes, ha="center", color=FAINT)
        return ax
    if quantity == "eigenvalue":
        ax.set(ylabel="Leading eigenvalue", yscale="log")
    else:
        ax.set(ylabel=TrainingCurvature.infos()["alignment"].heading, ylim=(0, 1))
        ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=None))
    ax.legend(fontsize="small")
    ax.set(xlabel=TrainingCurvature.infos()["step"].heading)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    return ax
