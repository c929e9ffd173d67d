"""Trajectory of the weights during training."""

from dataclasses import dataclass
from pathlib import Path

from visprism.analyses.base import ANALYSES, Analysis, Cost, Section
from visprism.analyses.loss.checkpoints import stored_weights
from visprism.analyses.subject import Subject
from visprism.core.options import option
from visprism.core.run import Run
from visprism.loss.planes import trajectory
from visprism.results.trajectory import Trajectory as TrajectoryResult
from visprism.table.result import Result


@ANALYSES.register
@dataclass(frozen=True)
class Trajectory(Analysis):
    """Trajectory of the weights during training, from checkpoints."""

    name = "trajectory"
    group = "loss"
    source = "Park & Kim (2022), fig. 1c, since withdrawn"
    rank = 0
    default = False
    sections = (
        Section(
            TrajectoryResult,
            "Trajectory of the weights",
            "Each point is a snapshot of training, from dark to bright, in its two principal "
            "components or by distance and direction from the end. Two numbers cannot show a "
            "path through millions of dimensions, and every random walk looks smooth in such a "
            "plane: conclude nothing from the shape alone.",
            figures={"": {}, "-polar": {"view": "polar"}},
        ),
    )

    checkpoints: tuple[Path, ...] = option(
        (), "checkpoints of the same architecture, at least 3, in the order of training"
    )

    def measure(self, subject: Subject, run: Run) -> tuple[Result, ...]:
        """Principal components and polar coordinates of the checkpoints."""
        return (trajectory(subject.model, stored_weights(self.checkpoints), run=run),)

    def cost(self, subject: Subject) -> Cost:
        """No forward pass."""
        return Cost(per_image=0.0)

    def inapplicable(self, subject: Subject) -> str | None:
        """Without checkpoints there is no trajectory."""
        if not self.checkpoints:
            return "the trajectory needs at least 3 checkpoints; set the option checkpoints"
        return super().inapplicable(subject)
