"""Singular values and effective rank of features."""

from collections.abc import Sequence
from dataclasses import dataclass

from visprism.analyses.base import ANALYSES, Cost, FeatureAnalysis, Section
from visprism.analyses.subject import Subject
from visprism.measure.features.probe import Probe
from visprism.measure.features.singular_values import SingularValueProbe
from visprism.results.singular_values import EffectiveRanks
from visprism.results.singular_values import SingularValues as SingularValuesResult
from visprism.table.result import Result


@ANALYSES.register
@dataclass(frozen=True)
class SingularValues(FeatureAnalysis):
    """Singular values and effective rank of the features of each block."""

    name = "singular-values"
    source = "Roy & Vetterli (2007)"
    sections = (
        Section(
            SingularValuesResult,
            "Singular values of features",
            "Each curve is a block: the singular values of its centered tokens, relative to "
            "the largest. Where a curve is steep, a few directions hold most of the variance.",
            figures={"": {}, "images": {"level": "images"}},
            table=False,
        ),
        Section(
            EffectiveRanks,
            "Effective rank of features",
            "Each point is a block: the effective rank of its features over channels.",
            figures={"": {}, "images": {"quantity": "image_rank"}},
        ),
    )

    def probe(self, subject: Subject) -> Probe:
        """The probe that gathers the products of channels."""
        return SingularValueProbe()

    def derive(self, result: Result) -> Sequence[Result]:
        """The singular values, and the effective ranks."""
        assert isinstance(result, SingularValuesResult)
        return result, result.effective_ranks()

    def cost(self, subject: Subject) -> Cost:
        """A forward pass and products of all channels in double precision."""
        return Cost(per_image=1.8)
