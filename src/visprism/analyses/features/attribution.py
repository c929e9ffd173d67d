"""Attribution maps of blocks."""

from collections.abc import Sequence
from dataclasses import dataclass

from visprism.analyses.base import ANALYSES, Analysis, Cost, Needs, Section, Sizes
from visprism.analyses.subject import Subject
from visprism.core.options import option
from visprism.core.run import Run
from visprism.measure.features.attribution import attribution
from visprism.results.attribution import METHODS, AttributionMaps, AttributionScores
from visprism.table.result import Result


@ANALYSES.register
@dataclass(frozen=True)
class Attribution(Analysis):
    """Gradient x activation and Grad-CAM of blocks, with insertion and deletion scores."""

    name = "attribution"
    needs = Needs.FEATURES | Needs.GRADIENTS
    images = Sizes(fewest=8, quick=32, standard=128, work=0.5)
    default = False  # tens of forward passes for each block
    source = "Selvaraju et al. (2017), eq. 1 and 2; Petsiuk et al. (2018), sec. 4.3"
    sections = (
        Section(
            AttributionScores,
            "Attribution maps of blocks",
            "Each line is a method: the area under the probability of the predicted class as "
            "pixels are inserted, those of the highest relevance first. A map that is not "
            "above the random map does not show which pixels the model uses.",
        ),
        Section(
            AttributionMaps,
            "Grad-CAM of the first images",
            "Each picture is the Grad-CAM map of one image and block, on the grid of the "
            "block. Read it together with the insertion score of the block.",
            table=False,
        ),
    )

    blocks: int = option(
        4, "number of blocks, spread evenly over the depth", minimum=1, quick=2
    )
    steps: int = option(
        10, "number of equal parts in which pixels are inserted and deleted", minimum=2, quick=5
    )

    def measure(self, subject: Subject, run: Run) -> Sequence[Result]:
        """Compute and score the maps."""
        return attribution(
            subject.anatomy,
            subject.batches(),
            blocks=self.blocks,
            steps=self.steps,
            run=run,
        )

    def cost(self, subject: Subject) -> Cost:
        """Passes with the pixels of each step, for each map."""
        blocks = min(self.blocks, len(subject.anatomy))
        return Cost(per_image=3 + blocks * (3 + 2 * (self.steps - 1) * len(METHODS)))

    def inapplicable(self, subject: Subject) -> str | None:
        """Without a vector of logits."""
        reason = super().inapplicable(subject)
        if reason is None and not subject.num_classes:
            return "the model does not return one vector of logits per image"
        return reason
