"""Attention by relative position alone."""

from collections.abc import Sequence
from dataclasses import dataclass

from visprism.analyses.base import ANALYSES, Analysis, Cost, Section
from visprism.analyses.subject import Subject
from visprism.core.options import option
from visprism.core.run import Run
from visprism.measure.weights.relative_scores import relative_score_tables, relative_scores
from visprism.results.weights import RelativeScores as Scores
from visprism.table.result import Result


@ANALYSES.register
@dataclass(frozen=True)
class RelativeScores(Analysis):
    """Attention of each head by relative position alone."""

    name = "relative-scores"
    group = "weights"
    source = "Cordonnier et al. (2020), fig. 3 and 4"
    share = 0.0
    sections = (
        Section(
            Scores,
            "Relative position scores",
            "Each map shows the attention weight of one head by the offset of the key from the "
            "query, on a constant image. The cross marks the query. A head with one dark cell "
            "acts as one tap of a convolution.",
            table=False,
        ),
    )

    layer: int = option(
        1, "number of the attention among those with relative scores, from 1", minimum=1
    )

    def measure(self, subject: Subject, run: Run) -> Sequence[Result]:
        """Softmax of the scores of one attention."""
        tables = list(relative_score_tables(subject.model).values())
        return (relative_scores(tables[self.layer - 1], run=run),)

    def cost(self, subject: Subject) -> Cost:
        """No image is needed."""
        return Cost(per_image=0)

    def inapplicable(self, subject: Subject) -> str | None:
        """Also where there is no such attention."""
        reason = super().inapplicable(subject)
        number = len(relative_score_tables(subject.model))
        if reason is None and number < self.layer:
            return (
                f"layer must be at most {number} in this model, got {self.layer}"
                if number
                else "the model has no attention with relative position scores"
            )
        return reason
