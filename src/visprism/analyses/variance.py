"""Variance of feature maps over positions."""

from collections.abc import Sequence
from dataclasses import dataclass

from visprism.analyses.base import ANALYSES, FeatureAnalysis, Section
from visprism.analyses.subject import Subject
from visprism.measure.features import Probe, VarianceProbe
from visprism.results.base import Result
from visprism.results.kind_summary import KindSummary
from visprism.results.variance import Variances


@ANALYSES.register
@dataclass(frozen=True)
class Variance(FeatureAnalysis):
    """Variance of feature maps over positions, by block."""

    name = "variance"
    source = "Park & Kim (2022), fig. 9"
    claims = ("C8",)
    sections = (
        Section(
            Variances,
            "Feature-map variance",
            "Each point is a block: the variance of its feature maps over positions. The "
            "variance grows with the scale of the residual stream; variance over mean square "
            "does not depend on it.",
            figures={"": {}, "relative": {"quantity": "relative"}},
        ),
        Section(
            KindSummary,
            "Feature-map variance by kind of block",
            "Each point is the mean change of the log variance across the blocks of one kind, "
            "with its 95% interval over images: -0.69 halves the variance.",
        ),
    )

    def probe(self, subject: Subject) -> Probe:
        """The probe that gathers the variances."""
        return VarianceProbe()

    def derive(self, result: Result) -> Sequence[Result]:
        """The variances, and their change by kind of block."""
        assert isinstance(result, Variances)
        return result, result.summarize_by_kind()
