"""Linear mode connectivity between checkpoints."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from visprism.analyses.base import ANALYSES, Analysis, Cost, Needs, Section, Sizes
from visprism.analyses.loss.checkpoints import stored_weights
from visprism.analyses.subject import Subject
from visprism.core.options import option
from visprism.core.run import Run
from visprism.loss.mode_connectivity import mode_connectivity
from visprism.results.mode_connectivity import LinearPaths, Soup
from visprism.table.result import Result


@ANALYSES.register
@dataclass(frozen=True)
class ModeConnectivity(Analysis):
    """Loss barrier between the model and checkpoints, and accuracy of their soup."""

    name = "mode-connectivity"
    group = "loss"
    needs = Needs.TARGETS
    images = Sizes(fewest=32, quick=64, standard=512, full=2000)
    rank = 3
    default = False  # which checkpoints to compare, only the user can say
    source = "Frankle et al. (2020), sec. 2; Wortsman et al. (2022), sec. 2"
    sections = (
        Section(
            LinearPaths,
            "Linear mode connectivity",
            "Each line is a segment of weights from the model to a checkpoint: the loss at its "
            "points, with its 95% interval over images. A loss above the straight line between "
            "both ends is a barrier.",
        ),
        Section(
            Soup,
            "Soup",
            "Accuracy of the mean of all weights beside that of each, with the gain of the "
            "soup and its 95% interval over images.",
            figures={},
        ),
    )

    checkpoints: tuple[Path, ...] = option(
        (), "checkpoints of the architecture of the model, at least one"
    )
    points: int = option(11, "number of points of each segment, with both ends", minimum=3)
    batch_norm: Literal["reestimated", "interpolated"] = option(
        "reestimated", "running statistics of BatchNorm between the ends"
    )

    def measure(self, subject: Subject, run: Run) -> Sequence[Result]:
        """Measure the loss along each segment."""
        names = [Path(file).name for file in self.checkpoints]
        states = dict(zip(names, stored_weights(self.checkpoints), strict=True))
        return mode_connectivity(
            subject.model,
            states,
            subject.batches(),
            points=self.points,
            batch_norm=self.batch_norm,
            run=run,
        )

    def cost(self, subject: Subject) -> Cost:
        """Two forward passes for each point, of which one is for BatchNorm."""
        return Cost(per_image=2 * (len(self.checkpoints) * (self.points - 1) + 2))

    def inapplicable(self, subject: Subject) -> str | None:
        """Without checkpoints there is no segment."""
        if not self.checkpoints:
            return "no checkpoints are named; set the option checkpoints"
        return super().inapplicable(subject)
