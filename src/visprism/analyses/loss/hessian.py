"""Hessian eigenvalues of mini-batches."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from visprism.analyses.base import ANALYSES, Analysis, Cost, Needs, Section, Sizes
from visprism.analyses.loss.checkpoints import phases
from visprism.analyses.subject import Measured, Subject
from visprism.core.options import option
from visprism.core.run import Run
from visprism.loss.spectrum import hessian_spectrum
from visprism.results.hessian import HessianCurves, HessianSpectrum
from visprism.results.hessian_differences import hessian_differences
from visprism.results.hessian_summary import HessianSummary
from visprism.table.result import Result

# Hessian-vector products per mini-batch: 17 to 23 on small ResNets and ViTs; building their
# graphs takes the time of 3 more.
_PRODUCTS = 26


@ANALYSES.register
@dataclass(frozen=True)
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
            "Each point is one objective. Further to the right the loss is sharper (APE, the "
            "mean of the positive leading eigenvalues); further up it is less convex (NEP, the "
            "fraction of negative ones). Intervals are over mini-batches.",
        ),
        Section(
            HessianCurves,
            "Hessian eigenvalues",
            "Density of the leading Hessian eigenvalues of the mini-batches, by magnitude. Up "
            "to 9 of them are marks without a density. Large positive eigenvalues mean a sharp "
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

    def compare(self, first: Measured, second: Measured, run: Run) -> tuple[Result, ...]:
        """The differences of NEP, APE, geometric mean and largest eigenvalue."""
        difference = hessian_differences(_spectrum(first), _spectrum(second))
        return (difference,) if len(difference) else ()

    def cost(self, subject: Subject) -> Cost:
        """About 26 Hessian-vector products of each mini-batch."""
        sets = 2 if self.train_images == "both" else 1
        return Cost(products=float(_PRODUCTS * sets * max(1, len(self.checkpoints))))


def _spectrum(measured: Measured) -> HessianSpectrum:
    return next(result for result in measured.results if isinstance(result, HessianSpectrum))
