"""Cosine similarity of position embeddings."""

from collections.abc import Sequence
from dataclasses import dataclass

from visprism.analyses.base import ANALYSES, Analysis, Cost, Section
from visprism.analyses.subject import Subject
from visprism.core.run import Run
from visprism.measure.weights.position_embeddings import (
    positional_similarity,
    why_no_embeddings,
)
from visprism.results.weights import PositionalSimilarity
from visprism.table.result import Result


@ANALYSES.register
@dataclass(frozen=True)
class PositionEmbeddings(Analysis):
    """Cosine similarity of the position embeddings of all positions."""

    name = "position-embeddings"
    group = "weights"
    source = "Dosovitskiy et al. (2021), fig. 7, center"
    share = 0.0
    sections = (
        Section(
            PositionalSimilarity,
            "Position embeddings",
            "Each map shows the cosine similarity of one position embedding to all others, "
            "drawn at its position on the token grid. A model that has learned the grid has "
            "its largest similarities nearby, and in the same row and column.",
            table=False,
        ),
    )

    def measure(self, subject: Subject, run: Run) -> Sequence[Result]:
        """Compare all pairs of embeddings."""
        return (positional_similarity(subject.anatomy, run=run),)

    def cost(self, subject: Subject) -> Cost:
        """No image is needed."""
        return Cost(per_image=0)

    def inapplicable(self, subject: Subject) -> str | None:
        """Also where the model adds no position embeddings."""
        return super().inapplicable(subject) or why_no_embeddings(subject.anatomy)
