"""Token norms, outlier tokens, massive activations and attention sinks."""

from dataclasses import dataclass

from visprism.analyses.base import ANALYSES, Cost, FeatureAnalysis, Section
from visprism.analyses.subject import Subject
from visprism.core.options import option
from visprism.measure.features.probe import Probe
from visprism.measure.features.token_norms import TokenNormProbe
from visprism.results.token_norms import (
    AttentionSinks,
    MassiveActivations,
    OutlierPlaces,
    OutlierTokens,
)
from visprism.results.token_norms import TokenNorms as TokenNormsResult


@ANALYSES.register
@dataclass(frozen=True)
class TokenNorms(FeatureAnalysis):
    """Norms of grid tokens, class tokens and registers; outliers and attention sinks."""

    name = "token-norms"
    source = "Darcet et al. (2024); Sun et al. (2024), sec. 2; Gu et al. (2025)"
    sections = (
        Section(
            TokenNormsResult,
            "Token norms",
            "Each line is the median norm of the tokens of one group, with bands from the 25% "
            "to the 75% and from the 1% to the 99% quantile. The head reads class tokens and "
            "not registers. A band that extends far upward indicates a few tokens of large "
            "norm.",
        ),
        Section(
            OutlierTokens,
            "Outlier tokens",
            "Each point is a block: the fraction of its grid tokens whose norm exceeds the "
            "threshold times the median of the same image and block.",
            figures={"": {}, "largest": {"quantity": "largest"}},
        ),
        Section(
            OutlierPlaces,
            "Places of outlier tokens",
            "Each picture shows, for each grid position of a block, the fraction of images "
            "whose token there is an outlier. Blocks with the most outliers are shown.",
            table=False,
        ),
        Section(
            MassiveActivations,
            "Largest activations",
            "Each point is a block: the largest absolute activation over the median one, as a "
            "power of 10. At 3 it is 1,000 times the median.",
        ),
        Section(
            AttentionSinks,
            "Attention sinks",
            "Each point is an attention layer: the fraction of heads in which one key receives "
            "more than the threshold of the attention, averaged over queries.",
            figures={"": {}, "largest": {"quantity": "largest"}},
        ),
    )

    outlier_threshold: float = option(
        4.0,
        "norm above which a token is an outlier, as a multiple of the median norm in its image "
        "and block",
        above=1,
    )
    sink_threshold: float = option(
        0.3, "fraction of a head's attention above which a key is a sink", above=0, below=1
    )

    def probe(self, subject: Subject) -> Probe:
        """The probe that gathers norms and attention."""
        return TokenNormProbe(
            outlier_threshold=self.outlier_threshold, sink_threshold=self.sink_threshold
        )

    def cost(self, subject: Subject) -> Cost:
        """A forward pass, the median of each feature map, and attention weights."""
        return Cost(per_image=2.0)
