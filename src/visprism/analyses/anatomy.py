"""Blocks, parameters and arithmetic of a model."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from visprism.analyses.base import ANALYSES, Analysis, Cost, Section
from visprism.analyses.subject import Subject
from visprism.anatomy import costs
from visprism.core.run import Run
from visprism.results.anatomy import Costs
from visprism.table.result import Result


@ANALYSES.register
@dataclass(frozen=True)
class Anatomy(Analysis):
    """Blocks of a model with their parameters and multiply-accumulates."""

    name = "anatomy"
    group = "model"
    source = "Park & Kim (2022), fig. 8"
    rank = 0
    sections = (
        Section(
            Costs,
            "Anatomy",
            "Each bar is a block; its height is the side of its spatial grid and its color the "
            "kind. The strips below show multiply-accumulates and parameters.",
        ),
    )

    def measure(self, subject: Subject, run: Run) -> Sequence[Result]:
        """Count parameters and arithmetic."""
        shape = subject.anatomy.image_shape
        origin = replace(run.provenance, image_shape=shape)
        return (replace(costs(subject.anatomy), provenance=origin),)

    def cost(self, subject: Subject) -> Cost:
        """The counts were taken when the model was dissected."""
        return Cost(per_image=0)
