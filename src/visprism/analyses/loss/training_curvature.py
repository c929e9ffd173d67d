"""Curvature during training, as a training run has stored it."""

from dataclasses import dataclass
from pathlib import Path

from visprism.analyses.base import ANALYSES, Analysis, Cost, Section
from visprism.analyses.loss.checkpoints import stored_curvature
from visprism.analyses.subject import Subject
from visprism.core.options import option
from visprism.core.run import Run
from visprism.results.training_curvature import TrainingCurvature as TrainingCurvatureResult
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
            TrainingCurvatureResult,
            "Curvature during training",
            "Leading Hessian eigenvalue of the training loss after every few updates. The "
            "dashed line is the largest curvature at which updates are stable on a quadratic: "
            "2 / learning rate for gradient descent. For Adam the preconditioned Hessian has "
            "one. The second figure is the fraction of the gradient in leading directions.",
            figures={"": {}, "-alignment": {"quantity": "alignment"}},
        ),
    )

    curvature: Path | None = option(  # noqa: RUF009 (a path cannot be changed)
        None, "file curvature.npz of a training run of the model with curvature_every"
    )

    def measure(self, subject: Subject, run: Run) -> tuple[Result, ...]:
        """The measurements that the run has stored."""
        assert self.curvature is not None  # see `inapplicable`
        return (stored_curvature(self.curvature, subject.model),)

    def cost(self, subject: Subject) -> Cost:
        """No forward pass."""
        return Cost(per_image=0.0)

    def inapplicable(self, subject: Subject) -> str | None:
        """Without a training run there is nothing to show."""
        if self.curvature is None:
            return "the curvature is measured in training; set the option curvature to its file"
        return super().inapplicable(subject)
