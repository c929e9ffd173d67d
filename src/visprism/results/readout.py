"""Readouts: what can be classified from the features of each block."""

from typing import ClassVar

import numpy as np
from jaxtyping import Float

from visprism.core.statistics import wilson
from visprism.estimates import questions
from visprism.estimates.answers import Answer
from visprism.estimates.findings import Finding
from visprism.table.result import column, result_type, scalar
from visprism.table.shapes import SeriesPerBlock

NEIGHBORS, RIDGE, LENS = READOUTS = ("k-NN", "ridge probe", "logit lens")
LAST_PROBE = "accuracy of the ridge probe, last block"


@result_type("readouts")
class Readouts(SeriesPerBlock):
    """Accuracy of readouts of each block; a row for each block and readout.

    NaN where a readout is not defined for a block.
    """

    series_name: ClassVar[str] = "readout"
    value_name: ClassVar[str] = "accuracy"

    readout: np.ndarray = column(
        "Readout", "", "'k-NN', 'ridge probe', or 'logit lens': the model's own head"
    )
    accuracy: np.ndarray = column("Accuracy", "", "fraction of test images")
    accuracy_error: np.ndarray = column(
        "Standard error of the accuracy", "", "over test images, sqrt(p (1 - p) / n)"
    )
    dimension: np.ndarray = column("Dimension", "", "of the features; 0 for the logit lens")
    pooling: str = scalar("Pooling", "", "'mean' over the grid, 'class' tokens, or 'both'")
    evaluation: str = scalar("Evaluation", "", "images that were fitted, and how many tested")
    chance: float = scalar("Chance", "", "share of the most frequent class")
    lens_note: str = scalar(
        "Note on the logit lens",
        "",
        "why it is missing for all or some blocks; '' if it is not",
    )

    @property
    def intervals(self) -> tuple[Float[np.ndarray, "rows"], Float[np.ndarray, "rows"]]:
        """Wilson's 95% intervals of the accuracies."""
        images, finite = self.provenance.images, np.isfinite(self.accuracy)
        if not images:
            return super().intervals
        correct = np.round(np.where(finite, self.accuracy, 0) * images).astype(np.int64)
        low, high = wilson(correct, np.full(len(self), images))
        return np.where(finite, low, np.nan), np.where(finite, high, np.nan)

    def findings(self) -> tuple[Finding, ...]:
        """Each readout, how it was evaluated, and where the logit lens is missing."""
        notes = [f"readouts of {self.pooling}-pooled features: {self.evaluation}"]
        notes += [self.lens_note] if self.lens_note else []
        return (*super().findings(), *map(Finding, notes))

    def answers(self) -> tuple[Answer, ...]:
        """The ridge probe of the last block."""
        rows = np.flatnonzero(self.readout == RIDGE)
        low, high = (float(ends[rows[-1]]) for ends in self.intervals)
        return (
            Answer(
                question=questions.READOUT.text,
                quantity=LAST_PROBE,
                value=float(self.accuracy[rows[-1]]),
                low=low,
                high=high,
                unit="%",
                over="images",
            ),
        )
