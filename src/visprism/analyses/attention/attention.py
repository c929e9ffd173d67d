"""Statistics of attention weights."""

from dataclasses import dataclass

from visprism.analyses.base import ANALYSES, FeatureAnalysis, Needs, Section
from visprism.analyses.subject import Subject
from visprism.measure.features.attention import AttentionProbe
from visprism.measure.features.probe import Probe
from visprism.results.attention import AttentionStatistics


@ANALYSES.register
@dataclass(frozen=True)
class Attention(FeatureAnalysis):
    """Attention distance, entropy, mutual information and redundancy of every head."""

    name = "attention"
    group = "attention"
    needs = Needs.FEATURES | Needs.ATTENTION
    source = "Dosovitskiy et al. (2021), fig. 7; Park et al. (2023), sec. 2"
    sections = (
        Section(
            AttentionStatistics,
            "Attention statistics",
            "Each point is a head. Distance is the mean distance in pixels between a query and "
            "the keys that it attends to. Mutual information is 1 if queries attend to "
            "different keys and 0 if all attend to the same keys (attention collapse).",
            figures={
                "": {},
                "entropy": {"quantity": "entropy"},
                "nmi": {"quantity": "nmi"},
                "redundancy": {"quantity": "redundancy"},
            },
        ),
    )

    def probe(self, subject: Subject) -> Probe:
        """The probe that gathers the statistics."""
        return AttentionProbe()
