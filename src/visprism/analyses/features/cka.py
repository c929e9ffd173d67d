"""CKA similarity of blocks."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from visprism.analyses.base import ANALYSES, Cost, FeatureAnalysis, Section, Sizes
from visprism.analyses.subject import Measured, Subject
from visprism.core.options import option
from visprism.core.run import Run
from visprism.measure.features.cka import CKAProbe
from visprism.measure.features.cka_between_models import compare
from visprism.measure.features.probe import Probe
from visprism.results.similarity import BlockStructure, Similarity
from visprism.table.result import Result


@ANALYSES.register
@dataclass(frozen=True)
class CKA(FeatureAnalysis):
    """CKA similarity of all pairs of blocks, of one model and between two."""

    name = "cka"
    images = Sizes(fewest=4)
    source = (
        "Kornblith et al. (2019); Nguyen, Raghu & Kornblith (2021); Park & Kim (2022), fig. D.3"
    )
    claims = ("C9",)
    sections = (
        Section(
            Similarity,
            "CKA similarity of blocks",
            "Each cell is a pair of blocks: 1 for equal features, about 0 for unrelated ones. "
            "A bright square between the white lines is a stage whose blocks are similar. Gray "
            "cells are not defined.",
            table=False,
        ),
        Section(
            BlockStructure,
            "Block structure",
            "Each cell is a pair of stages: mean CKA of their pairs of blocks, and its excess "
            "over all pairs at equal distance. Block structure is CKA within stages minus "
            "between stages, at equal distance.",
        ),
    )

    kernel: Literal["linear", "rbf"] = option("linear", "kernel of the features of two images")
    bandwidth: float = option(
        0.5, "RBF bandwidth as a multiple of the median distance in a batch", above=0
    )

    def inapplicable(self, subject: Subject) -> str | None:
        """The unbiased estimate takes at least 4 images."""
        return super().inapplicable(subject) or subject.too_few_images(self.images.fewest)

    def probe(self, subject: Subject) -> Probe:
        """The probe that gathers the similarity."""
        return CKAProbe(self.kernel, bandwidth=self.bandwidth)

    def derive(self, result: Result) -> Sequence[Result]:
        """The similarity of all pairs, and the block structure."""
        assert isinstance(result, Similarity)
        return result, result.block_structure()

    def comparison_cost(self, subject: Subject) -> Cost:
        """A pass over the images."""
        return Cost(per_image=1.2)

    def compare(self, first: Measured, second: Measured, run: Run) -> Sequence[Result]:
        """Similarity of the blocks of two models on the same images."""
        a, b = first.subject, second.subject
        similarity = compare(
            a.anatomy,
            b.anatomy,
            a.batches(),
            b.batches(a.batch_size),
            kernel=self.kernel,
            bandwidth=self.bandwidth,
            other_model=b.name,
            run=replace(run, provenance=a.named(run).provenance),
        )
        return (similarity.with_provenance(model=a.name),)  # as `other_model`
