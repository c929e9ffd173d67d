"""Curvature during training, as a training run has stored it; see `CurvatureMonitor`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, PercentFormatter

from visprism.analyses.base import ANALYSES, Analysis, Cost, Section
from visprism.analyses.subject import Subject
from visprism.core.errors import InputError
from visprism.core.options import option
from visprism.core.run import Run
from visprism.drawing.registry import figure
from visprism.drawing.style import FAINT, INK, KIND_COLORS, tip
from visprism.loss.monitor import MATRIX_LABELS, POINT_LABELS, CurvatureDuringTraining
from visprism.table.result import Result


@ANALYSES.register
@dataclass(frozen=True)
class TrainingCurvature(Analysis):
    """Leading Hessian eigenvalues during training, with the threshold of stability."""

    name = "training-curvature"
    group = "loss"
    source = "Cohen et al. (2021, 2022); Long & Bartlett (2024); Gur-Ari et al. (2018)"
    rank = 0
    default = False
    sections = (
        Section(
            CurvatureDuringTraining,
            "Curvature during training",
            "Leading Hessian eigenvalue of the training loss after every few updates. The "
            "dashed line is the largest curvature at which updates are stable on a quadratic: "
            "2 / learning rate for gradient descent. For Adam the preconditioned Hessian has "
            "one. The second figure is the fraction of the gradient in leading directions.",
            figures={"": {}, "alignment": {"quantity": "alignment"}},
        ),
    )

    curvature: Path | None = option(  # noqa: RUF009 (a path cannot be changed)
        None, "file curvature.npz of a training run of the model with curvature_every"
    )

    def measure(self, subject: Subject, run: Run) -> tuple[Result, ...]:
        """The measurements that the run has stored."""
        assert self.curvature is not None  # see `inapplicable`
        stored = CurvatureDuringTraining.load(self.curvature)
        parameters = sum(p.numel() for p in subject.model.parameters())
        if stored.parameters != parameters:
            raise InputError(
                f"{self.curvature} must be of a model with {parameters} parameters, got "
                f"{stored.parameters}. Name the model that the run has trained."
            )
        return (stored,)

    def cost(self, subject: Subject) -> Cost:
        """No forward pass."""
        return Cost()

    def inapplicable(self, subject: Subject) -> str | None:
        """Without a training run there is nothing to show."""
        if self.curvature is None:
            return "the curvature is measured in training; set the option curvature to its file"
        return super().inapplicable(subject)


_COLORS = {
    "hessian": KIND_COLORS["conv"],
    "preconditioned": KIND_COLORS["attention"],
}
_DASHES = {"weights": "-", "perturbed": (0, (1, 1))}


@figure(width=3.0, height=2.2, share=False)
def _(
    result: CurvatureDuringTraining,
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
        ax.set(ylabel=result.infos()["alignment"].heading, ylim=(0, 1))
        ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=None))
    ax.legend(fontsize="small")
    ax.set(xlabel=result.infos()["step"].heading)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    return ax
