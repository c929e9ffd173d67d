"""Spectral density of the Hessian over all images."""

from dataclasses import dataclass

from visprism.analyses.base import ANALYSES, Analysis, Cost, Needs, Section, Sizes
from visprism.analyses.subject import Subject
from visprism.core.options import option
from visprism.core.run import Run
from visprism.loss.density import spectral_density, trace
from visprism.loss.objective import Objective
from visprism.loss.spectrum import top_eigenvalues
from visprism.results.loss import Eigenvalues, SpectralDensity, Trace
from visprism.table.result import Result

_PRODUCTS = 26  # Hessian-vector products for the leading eigenvalues


@ANALYSES.register
@dataclass(frozen=True)
class Density(Analysis):
    """Spectral density, leading eigenvalues and trace of the Hessian of the training loss."""

    name = "density"
    full_precision = True
    group = "loss"
    needs = Needs.TARGETS | Needs.GRADIENTS | Needs.TRAINING_IMAGES
    source = "Ghorbani, Krishnan & Xiao (2019); Park & Kim (2022), app. C"
    claims = ("C16",)
    images = Sizes(fewest=16, quick=32, standard=256, work=2)
    rank = 3
    default = False
    sections = (
        Section(
            SpectralDensity,
            "Spectral density of the Hessian",
            "Fraction of all eigenvalues near each value, for the mean loss of all images, on "
            "a logarithmic scale. Most eigenvalues are near 0. The leading eigenvalue depends "
            "on the number of images: compare models on the same images.",
        ),
        Section(
            Eigenvalues,
            "Leading eigenvalues",
            "The leading Hessian eigenvalues of the mean loss over all images, with residuals. "
            "Hollow points did not converge.",
        ),
        Section(
            Trace,
            "Trace of the Hessian",
            "Independent estimates of the sum of all eigenvalues; their mean is the trace.",
            figures={},
        ),
    )

    k: int = option(5, "number of leading eigenvalues", minimum=1)
    runs: int = option(
        4,
        "number of random start vectors of the density; at least 3 for a standard error",
        minimum=1,
    )
    steps: int = option(40, "number of Lanczos steps per start vector", minimum=2, quick=20)
    probes: int = option(30, "number of random vectors for the trace", minimum=3)
    weight_decay: float | None = option(
        0.0,
        "weight decay of the L2 term; above 0, NLL + L2 is measured instead of NLL; none: that "
        "in the checkpoint's recipe, or 0 without one",
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

    def measure(self, subject: Subject, run: Run) -> tuple[Result, ...]:
        """Density, leading eigenvalues and trace."""
        wd = subject.weight_decay if self.weight_decay is None else self.weight_decay
        objective = Objective(
            subject.model,
            subject.training_batches(),
            weight_decay=wd or 0.0,
            decayed=subject.decayed,
            parameters=self.parameters,
            run=subject.named(run, training=True),
        )
        return (
            spectral_density(objective, runs=self.runs, steps=min(self.steps, len(objective))),
            top_eigenvalues(
                objective, k=min(self.k, len(objective)), learning_rate=self.learning_rate
            ),
            trace(objective, probes=self.probes),
        )

    def cost(self, subject: Subject) -> Cost:
        """Hessian-vector products of all images."""
        return Cost(products=float(self.runs * self.steps + self.probes + _PRODUCTS))
