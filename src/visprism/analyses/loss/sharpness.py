"""Sharpness of the loss in the sense of SAM."""

from dataclasses import dataclass
from typing import Literal

from visprism.analyses.base import ANALYSES, Analysis, Cost, Needs, Section, Sizes
from visprism.analyses.subject import Subject
from visprism.core.options import option
from visprism.core.run import Run
from visprism.loss.objective import Objective
from visprism.loss.sharpness import mini_batch_sharpness
from visprism.results.loss import Sharpness as SharpnessResult
from visprism.table.result import Result


@ANALYSES.register
@dataclass(frozen=True)
class Sharpness(Analysis):
    """Increase of the training loss at a small distance from the weights (SAM, m-sharpness)."""

    name = "sharpness"
    full_precision = True
    group = "loss"
    needs = Needs.TARGETS | Needs.GRADIENTS | Needs.TRAINING_IMAGES
    source = "Foret et al. (2021); Kwon et al. (2021)"
    claims = ("C3",)
    images = Sizes(fewest=16, quick=160, standard=512, work=1.5)  # 160: ten mini-batches
    sections = (
        Section(
            SharpnessResult,
            "Sharpness",
            "Increase of the loss of each mini-batch at a small distance from the weights: "
            "along the gradient (SAM), along the gradient scaled by the weights (ASAM), and in "
            "random directions (Gaussian). Intervals are over mini-batches.",
        ),
    )

    measures: tuple[Literal["sam", "asam", "gaussian"], ...] = option(
        ("sam", "asam", "gaussian"), "measures of sharpness"
    )
    mini_batch: int = option(16, "images per mini-batch", minimum=1)
    rho: float | None = option(
        None,
        "distance from the weights; none: 0.05 for sam, 0.5 for asam, 1 for gaussian",
        above=0,
    )
    steps: int = option(1, "number of gradient ascent steps of sam and asam", minimum=1)
    directions: int = option(
        8, "number of random directions of gaussian, each with its opposite", minimum=1
    )

    def measure(self, subject: Subject, run: Run) -> tuple[Result, ...]:
        """The sharpness of each mini-batch, also by quantity for paired differences."""
        subject = subject.in_mini_batches(self.mini_batch)
        objective = Objective(
            subject.model,
            subject.training_batches(self.mini_batch),
            run=subject.named(run, training=True),
        )
        result = mini_batch_sharpness(
            objective,
            self.measures,
            rho=self.rho,
            steps=self.steps,
            directions=self.directions,
        )
        return result, result.per_mini_batch()

    def cost(self, subject: Subject) -> Cost:
        """One gradient, others for more steps, and 2 x directions evaluations for gaussian."""
        return Cost(
            evaluations=3.0 + 2.0 * self.directions, gradients=1.0 + 2.0 * (self.steps - 1)
        )
