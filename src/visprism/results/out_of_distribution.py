"""Out-of-distribution detection: how well scores separate two data sets."""

from typing import ClassVar

import numpy as np
from jaxtyping import Float

from visprism.core.statistics import auroc_interval
from visprism.estimates import questions
from visprism.estimates.answers import Answer
from visprism.estimates.findings import Finding
from visprism.estimates.text import images_text
from visprism.table.result import column, result_type, scalar
from visprism.table.shapes import SeriesPerBlock

MSP, ENERGY, MAX_LOGIT = "maximum softmax", "energy", "max-logit"
NEIGHBOR, MAHALANOBIS = "k-NN distance", "Mahalanobis distance"


@result_type("out-of-distribution")
class OutOfDistribution(SeriesPerBlock):
    """AUROC of scores against images of other data; a row for each score and block.

    Scores of logits stand at the head.
    """

    series_name: ClassVar[str] = "score"
    value_name: ClassVar[str] = "auroc"

    score: np.ndarray = column(
        "Score",
        "",
        "of logits: 'maximum softmax', 'energy', 'max-logit'; of features: 'k-NN distance', "
        "'Mahalanobis distance'",
    )
    auroc: np.ndarray = column(
        "AUROC",
        "",
        "probability that an image of the data scores above another one; 0.5 is chance",
    )
    auroc_error: np.ndarray = column(
        "Standard error of the AUROC", "", "over images of both data sets, by DeLong's method"
    )
    fpr95: np.ndarray = column(
        "FPR at 95% TPR", "", "fraction of the other images accepted where 95% of the data are"
    )
    other_data: str = scalar("Other data", "", "of another distribution")
    other_images: int = scalar("Other images", "", "number of images of the other data")
    fitted_on: str = scalar("Fitted on", "", "images of k-NN and Mahalanobis distance")
    pooling: str = scalar("Pooling", "", "'mean' over the grid, 'class' tokens, or 'both'")

    @property
    def units(self) -> int:
        """Number of images of the smaller of the two data sets."""
        return min(self.provenance.images, self.other_images)

    @property
    def units_text(self) -> str:
        """The images of both data sets."""
        return f"images of both data sets (at least {self.units:,} of each)"

    @property
    def intervals(self) -> tuple[Float[np.ndarray, "rows"], Float[np.ndarray, "rows"]]:
        """The 95% intervals of the AUROC, within 0 and 1; see `auroc_interval`."""
        images = self.provenance.images, self.other_images
        return auroc_interval(self.auroc, self.auroc_error, *images)

    def findings(self) -> tuple[Finding, ...]:
        """Each score, and what was compared."""
        finite = np.flatnonzero(np.isfinite(self.auroc))
        if not len(finite):
            return super().findings()
        best = int(finite[np.argmax(self.auroc[finite])])
        return (
            *super().findings(),
            Finding(
                f"{images_text(self.provenance.images, self.provenance.split)} against "
                f"{self.other_images:,} of {self.other_data}; highest AUROC of "
                f"{len(finite)}: {self._interval(best)} by {self.score[best]} at "
                f"{self.block[best]} (selected), FPR at 95% TPR {self.fpr95[best]:.1%}; "
                f"fitted on {self.fitted_on}"
            ),
        )

    def answers(self) -> tuple[Answer, ...]:
        """The maximum softmax probability, the baseline of the field."""
        rows = np.flatnonzero(self.score == MSP)
        if not len(rows):
            return ()
        low, high = (float(ends[rows[0]]) for ends in self.intervals)
        return (
            Answer(
                question=questions.OTHER_DATA.text,
                quantity="AUROC of the maximum softmax probability",
                value=float(self.auroc[rows[0]]),
                low=low,
                high=high,
                over="images",
                subject=self.other_data,
            ),
        )
