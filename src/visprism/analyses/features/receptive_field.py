"""Effective receptive field of blocks."""

from collections.abc import Sequence
from dataclasses import dataclass

from visprism.analyses.base import ANALYSES, Analysis, Cost, Needs, Section, Sizes
from visprism.analyses.subject import Subject
from visprism.core.options import option
from visprism.core.run import Run
from visprism.measure.features.receptive_field_gradients import receptive_field
from visprism.results.receptive_field import ReceptiveField as ReceptiveFieldResult
from visprism.results.receptive_field import ReceptiveMaps
from visprism.table.result import Result


@ANALYSES.register
@dataclass(frozen=True)
class ReceptiveField(Analysis):
    """Effective receptive field: the pixels that the center of each feature map depends on."""

    name = "receptive-field"
    full_precision = True
    needs = Needs.FEATURES | Needs.GRADIENTS
    images = Sizes(
        quick=32, standard=32, work=0.5
    )  # 32: fewest with an interval of a difference
    source = "Luo et al. (2016); Ding et al. (2022)"
    sections = (
        Section(
            ReceptiveFieldResult,
            "Effective receptive field",
            "Each point is a block: the root mean squared distance, along one axis, of the "
            "pixels that its center position depends on. The dashed line is that of equal "
            "weights for all pixels.",
            figures={"": {}, "side": {"quantity": "side_50"}},
        ),
        Section(
            ReceptiveMaps,
            "Receptive fields as maps",
            "Each picture shows how strongly the center position of a block depends on each "
            "pixel, relative to the strongest one, on a logarithmic scale.",
            table=False,
        ),
    )

    num_blocks: int = option(7, "number of blocks with a map, spread over the depth", minimum=1)

    def measure(self, subject: Subject, run: Run) -> Sequence[Result]:
        """Measure one model; see `Analysis.measure`."""
        return receptive_field(
            subject.anatomy, subject.batches(), num_blocks=self.num_blocks, run=run
        )

    def cost(self, subject: Subject) -> Cost:
        """A forward pass, and for each block a backward pass from it to the image.

        Of a ViT, where zeros of gradients are few (`benchmarks/receptive_field.py`).
        """
        blocks = sum(block.layout is not None for block in subject.anatomy)
        return Cost(per_image=1.0 + 0.8 * blocks)
