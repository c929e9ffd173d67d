"""Curvature during training, which `vp.Monitor` measures; see `training_curvature`."""

from collections.abc import Sequence
from copy import copy
from dataclasses import field
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, PercentFormatter
from torch.optim import SGD, Optimizer

from visprism import kit
from visprism.drawing import style
from visprism.loss.training_curvature import (
    MATRIX_LABELS,
    POINT_LABELS,
    CurvatureDuringTraining,
    training_curvature,
)


@kit.analysis
class TrainingCurvature(kit.Analysis):
    """Leading Hessian eigenvalues during training, with the threshold of stability."""

    name = "training-curvature"
    group = "loss"
    source = "Cohen et al. (2021, 2022); Long & Bartlett (2024); Gur-Ari et al. (2018)"
    needs = kit.Needs.OUTCOMES | kit.Needs.GRADIENTS | kit.Needs.TRAINING_IMAGES
    full_precision = True
    default = False
    measured_by = "train"
    gives = CurvatureDuringTraining

    k: int = kit.option(1, "number of eigenvalues", minimum=1)
    sam_rho: float = kit.option(0.0, "radius of SAM, if it trains; 0: without", minimum=0)
    adaptive: bool = kit.option(False, "adaptive SAM (ASAM)")
    tol: float = kit.option(1e-2, "relative residual of convergence", above=0)

    # The monitor sets these by `at_step`.
    step: int = field(default=0, init=False, repr=False, compare=False)
    optimizers: tuple[Optimizer, ...] = field(default=(), init=False, repr=False, compare=False)

    def at_step(self, step: int, optimizers: Sequence[Optimizer]) -> "TrainingCurvature":
        """The analysis of the weights after `step` updates by these optimizers."""
        analysis = copy(self)
        vars(analysis).update(step=step, optimizers=tuple(optimizers))
        return analysis

    def measure(self, subject: kit.Subject, run: kit.Run) -> tuple[kit.Result, ...]:
        """The eigenvalues at the present weights."""
        curvature = training_curvature(
            subject.model,
            subject.training_batches(),
            self.optimizers,
            step=self.step,
            k=self.k,
            sam_rho=self.sam_rho,
            adaptive=self.adaptive,
            tol=self.tol,
            run=run,
        )
        return (curvature,)

    def cost(self, subject: kit.Subject) -> kit.Cost:
        """About 15 Hessian products for each image, matrix and point."""
        matrices = 1 if all(isinstance(o, SGD) for o in self.optimizers) else 2
        return kit.Cost(products=15 * matrices * (2 if self.sam_rho else 1))

    def inapplicable(self, subject: kit.Subject) -> str | None:
        """Without an optimizer there is no training."""
        if not self.optimizers:
            return "it needs the optimizer of a training: measure it with vp.Monitor"
        updated = {id(p) for o in self.optimizers for g in o.param_groups for p in g["params"]}
        if updated.isdisjoint(map(id, subject.model.parameters())):
            return "the optimizer must update the weights that are measured, and not others"
        return super().inapplicable(subject)


_COLORS = {
    "hessian": style.KIND_COLORS["conv"],
    "preconditioned": style.KIND_COLORS["attention"],
}
_DASHES = {"weights": "-", "perturbed": (0, (1, 1))}


@kit.figure(width=3.0, height=2.2, share=False)
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
            gid=style.tip(f"{name} · {values[-1]:.4g} after step {rows.step[-1]}"),
        )  # fmt: skip
        finite = np.isfinite(rows.threshold)
        if quantity == "eigenvalue" and point == "weights" and finite.any():
            ax.plot(
                rows.step[finite], rows.threshold[finite], color=style.INK,
                linestyle=(0, (5, 1.5)), linewidth=0.8, label="stability threshold",
            )  # fmt: skip
    if not len(result):
        ax.text(
            0.5, 0.5, "not measured", transform=ax.transAxes, ha="center", color=style.FAINT
        )
        return ax
    if quantity == "eigenvalue":
        ax.set(ylabel="Leading eigenvalue", yscale="log")
    else:
        ax.set(ylabel=result.infos()["alignment"].heading, ylim=(0, 1))
        ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=None))
    style.legend(ax, fontsize="small")
    ax.set(xlabel=result.infos()["step"].heading)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    return ax
