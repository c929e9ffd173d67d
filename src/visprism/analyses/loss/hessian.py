"""Hessian eigenvalues of mini-batches, NEP and APE.

For each mini-batch B, the k leading eigenvalues of d²/dtheta² (1/|B| sum_B loss). NEP is the
fraction of negative ones, APE the mean of the positive ones.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.container import Container
from matplotlib.figure import Figure

from visprism.analyses.base import ANALYSES, Analysis, Cost, Needs, Section, Sizes
from visprism.analyses.loss.checkpoints import phases
from visprism.analyses.subject import Subject
from visprism.core.options import option
from visprism.core.run import Run
from visprism.drawing.depth import legend_above
from visprism.drawing.registry import figure
from visprism.drawing.style import DEPTH, FAINT, tip
from visprism.loss.hessian_summary import (
    HessianCurves,
    HessianSpectrum,
    HessianSummary,
    OfObjectives,
)
from visprism.loss.spectrum import hessian_spectrum
from visprism.table.result import Result

# Hessian-vector products per mini-batch: 17 to 23 on small ResNets and ViTs; building their
# graphs takes the time of 3 more.
_PRODUCTS = 26


@ANALYSES.register
class Hessian(Analysis):
    """Leading Hessian eigenvalues of mini-batches of training images."""

    name = "hessian"
    full_precision = True
    group = "loss"
    needs = Needs.TARGETS | Needs.GRADIENTS | Needs.TRAINING_IMAGES
    source = "Park & Kim (2022), fig. 1b, 4 and app. C"
    claims = ("C1", "C2", "C3", "C13", "C16")
    images = Sizes(fewest=16, quick=80, standard=512, work=3)  # 80: ten mini-batches
    rank = 3
    sections = (
        Section(
            HessianSummary,
            "Sharpness and convexity",
            "APE is the mean of the positive leading eigenvalues: with a larger one the loss "
            "is sharper. NEP is the fraction of negative ones: with a larger one the loss is "
            "less convex. Intervals are over mini-batches.",
            figures={},
        ),
        Section(
            HessianCurves,
            "Hessian eigenvalues",
            "Density of the leading Hessian eigenvalues of the mini-batches, by magnitude. Up "
            "to 9 of them are drawn as marks. Large positive eigenvalues mean a sharp "
            "loss. Negative ones, on the left, are directions of negative curvature: the "
            "weights are not at a local minimum.",
            table=False,
        ),
        Section(
            HessianSpectrum,
            "Eigenvalues of each mini-batch",
            "Each row is a value of one mini-batch; an eigenvalue of the Hessian is within its "
            "residual. Rank 0 marks estimates of the largest and smallest eigenvalue, for "
            "which convergence is not required.",
            figures={},
        ),
    )

    k: int = option(5, "number of leading eigenvalues of each mini-batch", minimum=1)
    which: Literal["LM", "LA", "SA", "BE"] = option(
        "LM", "largest in magnitude (LM), largest (LA), smallest (SA), or both ends (BE)"
    )
    mini_batch: int = option(16, "images per mini-batch", minimum=1, quick=8)
    train_images: Literal["clean", "augmented", "both"] = option(
        "clean", "training images as they are, augmented as in the strong recipe, or both"
    )
    weight_decay: float | None = option(
        None,
        "weight decay of the L2 term; above 0, eigenvalues of NLL + L2 are computed too; none: "
        "that in the checkpoint's recipe, or 0 without one",
        minimum=0,
    )
    parameters: str = option(
        "all",
        "parameters to differentiate by: all, a pattern of names, block:NAME, stage:NUMBER or "
        "kind:KIND",
    )
    learning_rate: float | None = option(
        None,
        "learning rate of training, to compare the sharpness with 2 / learning rate",
        above=0,
    )
    checkpoints: tuple[Path, ...] = option(
        (), "checkpoints of the same model to measure instead, as phases of training"
    )

    def measure(self, subject: Subject, run: Run) -> tuple[Result, ...]:
        """Summary, densities and spectrum."""
        subject = subject.in_mini_batches(self.mini_batch)
        data = {}
        if self.train_images != "augmented":
            data["clean"] = subject.training_batches(self.mini_batch)
        if self.train_images != "clean":
            data["augmented"] = subject.augmented_batches(run.seed, self.mini_batch)
        wd = subject.weight_decay if self.weight_decay is None else self.weight_decay
        spectrum = HessianSpectrum.concatenate(
            hessian_spectrum(
                model,
                data if self.train_images == "both" else next(iter(data.values())),
                k=self.k,
                which=self.which,
                weight_decay=wd or 0.0,
                decayed=subject.decayed,
                parameters=self.parameters,
                phase=phase,
                learning_rate=self.learning_rate,
                run=subject.named(run, training=True),
            )
            for phase, model in phases(subject.model, self.checkpoints)
        )
        return spectrum.summary(), spectrum.curves(), spectrum

    def cost(self, subject: Subject) -> Cost:
        """About 26 Hessian-vector products of each mini-batch."""
        sets = 2 if self.train_images == "both" else 1
        return Cost(products=float(_PRODUCTS * sets * max(1, len(self.checkpoints))))


_STYLES = ("-", "--", "-.", ":")  # of objectives
_OBJECTIVES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")  # as of kinds of block


def _key(figure: Figure | Axes, axes: Sequence[Axes]) -> None:
    """A legend of the objectives, once for all models."""
    lines: dict[str, Artist | Container] = {}
    for ax in axes:
        handles, labels = ax.get_legend_handles_labels()
        lines |= dict(zip(labels, handles, strict=True))
    if len(lines) > 1:
        legend_above(figure, lines)


@figure(width=3.2, height=2.1, key=_key, key_height=0.45, share_values=True)
def _(result: HessianCurves, ax: Axes) -> Axes:
    """Densities of negative and positive eigenvalues on one axis, logarithmic beyond 0.

    Fewer than 10 eigenvalues of a sign are drawn as marks, without a density.
    """
    labels = np.array(_labels(result), dtype=object)
    for name, (color, style) in _styles(result).items():
        label = name
        for sign in (-1, 1):
            curve = result.select((labels == name) & (result.sign == sign))
            if not len(curve):
                continue
            drawing = {"color": color, "label": label, "gid": tip(name)}
            label = f"_{name}"  # in the legend once
            if np.isnan(curve.density).any():  # too few eigenvalues for a density
                ax.plot(curve.value, np.zeros(len(curve)), "|", markersize=9, **drawing)
                continue
            ax.plot(curve.value, curve.density, linestyle=style, linewidth=1.2, **drawing)
            ax.fill_between(curve.value, curve.density, color=color, alpha=0.1, lw=0)
    if len(result):
        smallest = float(np.abs(result.value).min())
        ax.set_xscale("symlog", linthresh=smallest, linscale=0.2)
    ax.axvline(0, color=FAINT, linewidth=0.6, zorder=0)
    ax.set_ylim(bottom=0)
    ax.set(xlabel=HessianCurves.infos()["value"].label, ylabel="Density per decade")
    return ax


def _labels(result: OfObjectives) -> list[str]:
    """The name of each row: phase, data and objective."""
    return [
        ", ".join(filter(None, (phase, data, "NLL + L2" if decay else "NLL")))
        for phase, data, decay in result.keys
    ]


def _styles(result: OfObjectives) -> dict[str, tuple]:
    """Color and line style of each name; phases run from dark to light."""
    phases = list(dict.fromkeys(result.phase.tolist()))
    objectives = list(dict.fromkeys((data, decay) for _, data, decay in result.keys))
    styles: dict[str, tuple] = {}
    for label, (phase, data, decay) in zip(_labels(result), result.keys, strict=True):
        n = objectives.index((data, decay)) % len(_STYLES)
        color = _OBJECTIVES[n]
        if len(phases) > 1:
            color = DEPTH(phases.index(phase) / (len(phases) - 1))
        styles[label] = color, _STYLES[n]
    return styles
