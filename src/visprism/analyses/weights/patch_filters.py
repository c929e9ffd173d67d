"""Principal components of the first kernels."""

from collections.abc import Sequence
from dataclasses import dataclass

from visprism.analyses.base import ANALYSES, Analysis, Cost, Section
from visprism.analyses.subject import Subject
from visprism.core.options import option
from visprism.core.run import Run
from visprism.measure.weights.patch_filters import patch_filters, why_no_kernels
from visprism.results.weights import PatchFilters as Components
from visprism.table.result import Result


@ANALYSES.register
@dataclass(frozen=True)
class PatchFilters(Analysis):
    """Principal components of the kernels that first read the image."""

    name = "patch-filters"
    group = "weights"
    source = "Dosovitskiy et al. (2021), fig. 7, left"
    share = 0.0
    sections = (
        Section(
            Components,
            "Patch filters",
            "Principal components of the kernels that first read the image, with their "
            "explained variance. Smooth leading components span low frequencies.",
            table=False,
        ),
    )

    components: int = option(28, "maximum number of principal components", minimum=1)

    def measure(self, subject: Subject, run: Run) -> Sequence[Result]:
        """Decompose the kernels."""
        return (patch_filters(subject.anatomy, components=self.components, run=run),)

    def cost(self, subject: Subject) -> Cost:
        """No image is needed."""
        return Cost(per_image=0)

    def inapplicable(self, subject: Subject) -> str | None:
        """Also where no convolution reads the image."""
        return super().inapplicable(subject) or why_no_kernels(subject.anatomy)
