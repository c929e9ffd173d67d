"""Token similarity: over-smoothing of tokens with depth."""

from dataclasses import dataclass

from visprism.analyses.base import ANALYSES, Cost, FeatureAnalysis, Section
from visprism.analyses.subject import Subject
from visprism.measure.features import Probe
from visprism.measure.features.token_similarity import TokenSimilarityProbe
from visprism.results.token_similarity import TokenSimilarity as TokenSimilarityResult


@ANALYSES.register
@dataclass(frozen=True)
class TokenSimilarity(FeatureAnalysis):
    """Cosine similarity between the tokens of an image, by block (over-smoothing)."""

    name = "token-similarity"
    source = "Gong et al. (2021), eq. 4; Wang et al. (2022)"
    sections = (
        Section(
            TokenSimilarityResult,
            "Similarity of tokens",
            "Each line is a choice of tokens: the mean cosine between two tokens of an image. "
            "A line that rises to 1 is over-smoothing. Where only the line without removal of "
            "the mean is high, the tokens share one direction and still differ in the others.",
        ),
    )

    def probe(self, subject: Subject) -> Probe:
        """The probe that gathers the similarity."""
        return TokenSimilarityProbe()

    def cost(self, subject: Subject) -> Cost:
        """A forward pass and a part of one for the statistic."""
        return Cost(per_image=1.6)
