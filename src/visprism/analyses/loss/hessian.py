"""Hessian eigenvalues of mini-batches, NEP and APE.

For each mini-batch B, the k leading eigenvalues of d²/dtheta² (1/|B| sum_B loss). NEP is the
fraction of negative ones, APE the mean of the positive ones.
"""

from typing import Literal

import numpy as np
from matplotlib.axes import Axes

from visprism import kit
from visprism.drawing import style
from visprism.drawing.depth import from_zero
from visprism.loss.hessian_summary import (
    HessianCurves,
    HessianSpectrum,
    HessianSummary,
)
from visprism.loss.spectrum import hessian_spectrum

# Hessian-vector products per mini-batch: 17 to 23 on small ResNets and ViTs; building their
# graphs takes the time of 3 more.
_PRODUCTS = 26


@kit.analysis
class Hessian(kit.Analysis):
    """Leading Hessian eigenvalues of mini-batches of training images."""

    name = "hessian"
    full_precision = True
    group = "loss"
    needs = kit.Needs.OUTCOMES | kit.Needs.GRADIENTS | kit.Needs.TRAINING_IMAGES
    source = "Park & Kim (2022), fig. 1b, 4 and app. C"
    claims = ("C1", "C2", "C3", "C13", "C16")
    images = kit.Sizes(fewest=16, quick=80, standard=512, work=3)  # 80: ten mini-batches
    rank = 3
    gives = (
        HessianSummary,
        HessianCurves,
        HessianSpectrum,
    )

    k: int = kit.option(5, "number of leading eigenvalues of each mini-batch", minimum=1)
    which: Literal["LM", "LA", "SA", "BE"] = kit.option(
        "LM", "largest in magnitude (LM), largest (LA), smallest (SA), or both ends (BE)"
    )
    mini_batch: int = kit.option(16, "images per mini-batch", minimum=1, quick=8)
    train_images: Literal["clean", "augmented"] = kit.option(
        "clean", "training images as they are, or augmented as in the strong recipe"
    )
    weight_decay: float | None = kit.option(
        0.0,
        "weight decay of the L2 term; 0, also for a checkpoint with a recipe: only the NLL; "
        "above 0: NLL + L2 instead; none: that in the checkpoint's recipe, or 0 without one",
        minimum=0,
    )
    parameters: str = kit.option(
        "trained",
        "parameters to differentiate by: trained (with requires_grad), all, a pattern of "
        "names, block:NAME, stage:NUMBER or kind:KIND",
    )
    learning_rate: float | None = kit.option(
        None,
        "learning rate of training, to compare the sharpness with 2 / learning rate",
        above=0,
    )

    def measure(self, subject: kit.Subject, run: kit.Run) -> tuple[kit.Result, ...]:
        """Summary, densities and spectrum."""
        subject = subject.in_mini_batches(self.mini_batch)
        wd = subject.weight_decay if self.weight_decay is None else self.weight_decay
        augmented = self.train_images == "augmented"
        batches = subject.training_batches(self.mini_batch)
        if augmented:
            batches = subject.augmented_batches(run.seed, self.mini_batch)
        spectrum = hessian_spectrum(
            subject.model,
            batches,
            k=self.k,
            which=self.which,
            weight_decay=wd or 0.0,
            decayed=subject.decayed,
            parameters=self.parameters,
            learning_rate=self.learning_rate,
            run=subject.named(run, training=True, augmented=augmented),
        )
        return spectrum.summary(), spectrum.curves(), spectrum

    def cost(self, subject: kit.Subject) -> kit.Cost:
        """About 26 Hessian-vector products of each mini-batch."""
        return kit.Cost(products=float(_PRODUCTS))


@kit.figure(width=3.2, height=2.1, share_values=True)
def _(result: HessianCurves, ax: Axes) -> Axes:
    """Densities of negative and positive eigenvalues on one axis, logarithmic beyond 0.

    Fewer than 10 eigenvalues of a sign are drawn as marks, without a density.
    """
    color = style.KIND_COLORS["conv"]
    for sign in np.unique(result.sign):
        curve = result.select(result.sign == sign)
        if np.isnan(curve.density).any():  # too few eigenvalues for a density
            ax.plot(curve.value, np.zeros(len(curve)), "|", markersize=9, color=color)
        else:
            ax.plot(curve.value, curve.density, color=color, linewidth=1.2)
            ax.fill_between(curve.value, curve.density, color=color, alpha=0.1, lw=0)
    if len(result):  # models share the scale, linear below the smallest power of ten of all
        smallest = 10 ** np.floor(np.log10(np.abs(result.value).min()))
        other = getattr(ax.xaxis.get_transform(), "linthresh", np.inf)
        ax.set_xscale("symlog", linthresh=min(smallest, other), linscale=0.5)
    ax.axvline(0, color=style.FAINT, linewidth=0.6, zorder=0)
    from_zero(ax)
    ax.set(xlabel=HessianCurves.infos()["value"].label, ylabel="Density per decade")
    return ax
