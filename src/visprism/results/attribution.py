"""Attribution maps of blocks, with deletion and insertion scores."""

from typing import ClassVar

import numpy as np

from visprism.estimates.findings import Finding
from visprism.estimates.text import interval_text
from visprism.table.result import column, result_type, scalar
from visprism.table.shapes import Pictures, SeriesPerBlock

GRADIENT_ACTIVATION = "gradient x activation"
GRAD_CAM = "Grad-CAM"
RANDOM = "random map"
METHODS = (GRADIENT_ACTIVATION, GRAD_CAM, RANDOM)


@result_type("attribution-scores")
class AttributionScores(SeriesPerBlock):
    """Insertion and deletion scores of attribution maps; a row for each method and block.

    Gains are paired by image with a random map of the same grid.
    """

    value_name: ClassVar[str] = "insertion"
    series_name: ClassVar[str] = "method"

    method: np.ndarray = column(
        "Method", "", "'gradient x activation', 'Grad-CAM' or 'random map'"
    )
    insertion: np.ndarray = column(
        "Insertion score",
        "",
        "mean probability of the predicted class as pixels are inserted, highest first",
    )
    insertion_error: np.ndarray = column("Standard error of the insertion score", "", "")
    insertion_gain: np.ndarray = column(
        "Insertion gain", "", "insertion score minus that of a random map; higher is better"
    )
    insertion_gain_low: np.ndarray = column(
        "Insertion gain, low", "", "lower end of the 95% interval over images"
    )
    insertion_gain_high: np.ndarray = column(
        "Insertion gain, high", "", "upper end of the 95% interval over images"
    )
    deletion: np.ndarray = column(
        "Deletion score",
        "",
        "mean probability of the predicted class as pixels are deleted, highest first",
    )
    deletion_error: np.ndarray = column("Standard error of the deletion score", "", "")
    deletion_gain: np.ndarray = column(
        "Deletion gain", "", "deletion score minus that of a random map; lower is better"
    )
    deletion_gain_low: np.ndarray = column(
        "Deletion gain, low", "", "lower end of the 95% interval over images"
    )
    deletion_gain_high: np.ndarray = column(
        "Deletion gain, high", "", "upper end of the 95% interval over images"
    )
    steps: int = scalar("Steps", "", "number of equal parts in which pixels are inserted")

    def findings(self) -> tuple[Finding, ...]:
        """For each method the block with the largest insertion gain, named as a maximum."""
        texts = []
        for name, rows in self.series().items():
            if name == RANDOM:
                continue
            best = int(rows[np.argmax(self.insertion_gain[rows])])
            insertion, deletion = (self._gain(s, best) for s in ("insertion", "deletion"))
            texts.append(
                f"{name}: largest insertion gain over a random map of {len(rows)} blocks at "
                f"{self.block[best]}, {insertion} (insertion score "
                f"{self.insertion[best]:.3f}); deletion gain there {deletion}; "
                f"intervals over {self.units_text}"
            )
        return tuple(map(Finding, texts))

    def _gain(self, score: str, row: int) -> str:
        value, low, high = (
            float(getattr(self, f"{score}_gain{end}")[row]) for end in ("", "_low", "_high")
        )
        return interval_text(value, low, high, "+.3f")


@result_type("attribution-maps")
class AttributionMaps(Pictures):
    """Grad-CAM maps of the first images; a row for each position."""

    value_name: ClassVar[str] = "relevance"

    relevance: np.ndarray = column("Relevance", "", "of the position, 1 at the largest")

    def findings(self) -> tuple[Finding, ...]:
        """None: every map is scaled to 1, and only its scores say whether it means anything."""
        return ()
