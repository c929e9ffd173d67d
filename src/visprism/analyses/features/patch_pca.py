"""PCA pictures of patch features."""

from collections.abc import Sequence
from dataclasses import dataclass

from visprism.analyses.base import ANALYSES, Analysis, Cost, Needs, Section, Sizes
from visprism.analyses.subject import Subject
from visprism.core.options import option
from visprism.core.run import Run
from visprism.measure.features.patch_pca import patch_pca
from visprism.results.patch_pca import PatchComponents
from visprism.table.result import Result

_MOST_IMAGES = 16  # whose feature maps are in memory at once


@ANALYSES.register
@dataclass(frozen=True)
class PatchPCA(Analysis):
    """Pictures of the principal components of patch features, joint over images, by block."""

    name = "patch-pca"
    needs = Needs.FEATURES
    images = Sizes(quick=_MOST_IMAGES, standard=_MOST_IMAGES, full=_MOST_IMAGES)
    source = "Oquab et al. (2024), fig. 1"
    sections = (
        Section(
            PatchComponents,
            "Principal components of patch features",
            "Each row is an image and each column a block; red, green and blue are the first "
            "three principal components of the patches of all images together. Patches of one "
            "color have similar features, also across images.",
            table=False,
        ),
    )

    num_blocks: int = option(
        6, "number of blocks with pictures, spread over the depth", minimum=1
    )
    background_threshold: float | None = option(
        None,
        "score of the first component, in [0, 1], up to which a patch is background; the "
        "components are fitted again on the other patches; none: all patches are used",
        minimum=0,
        below=1,
    )

    def measure(self, subject: Subject, run: Run) -> Sequence[Result]:
        """Measure one model; see `Analysis.measure`."""
        batches = subject.limited(min(subject.num_images, _MOST_IMAGES)).batches()
        return (
            patch_pca(
                subject.anatomy,
                batches,
                num_blocks=self.num_blocks,
                background_threshold=self.background_threshold,
                run=run,
            ),
        )

    def cost(self, subject: Subject) -> Cost:
        """One pass."""
        return Cost(per_image=1.5)
