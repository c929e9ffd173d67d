"""Result on images with conflicting cues: decisions for the shape or for the texture."""

import numpy as np

from visprism.core.statistics import wilson
from visprism.estimates import questions
from visprism.estimates.answers import Answer
from visprism.estimates.findings import Finding
from visprism.estimates.text import images_text, interval_text
from visprism.table.result import Result, column, result_type

SHAPE_BIAS = "shape bias"  # name of the quantity
_FEWEST_CATEGORIES = 2  # of which each image shows both, so that every decision is for one


@result_type("shape-bias")
class ShapeBias(Result):
    """Decisions on images whose shape and texture differ, by category and for all images."""

    category: np.ndarray = column(
        "Category", "", "category of the shape; 'all' in the last row"
    )
    images: np.ndarray = column("Images", "", "images whose shape and texture differ")
    shape_decisions: np.ndarray = column(
        "Shape decisions", "", "images classified by their shape"
    )
    texture_decisions: np.ndarray = column(
        "Texture decisions", "", "images classified by their texture"
    )
    bias: np.ndarray = column(
        "Shape bias", "", "shape decisions over shape and texture decisions; NaN without any"
    )
    low: np.ndarray = column("Low", "", "lower end of the 95% Wilson interval of the bias")
    high: np.ndarray = column("High", "", "upper end of the 95% Wilson interval of the bias")
    accuracy: np.ndarray = column(
        "Accuracy", "", "shape decisions over all images with conflicting cues"
    )

    def findings(self) -> tuple[Finding, ...]:
        """The shape bias of all images, and how many are classified by either cue."""
        images, categories = int(self.images[-1]), len(self) - 1
        decisions = int(self.shape_decisions[-1] + self.texture_decisions[-1])
        tested = f"{images_text(images, self.provenance.split)} with conflicting cues"
        if not decisions:
            return (
                Finding(f"shape bias undefined: 0 of {tested} are classified by either cue"),
            )
        bias = interval_text(self.bias[-1], self.low[-1], self.high[-1], ".1%")
        fraction, chance = decisions / images, 2 / categories if categories else 1.0
        text = f"shape bias {bias} over {decisions} decisions for shape or texture"
        low, _ = wilson(np.array([decisions]), np.array([images]))
        if low[0] > chance:
            return (Finding(f"{text}, {fraction:.1%} of {tested}"),)
        return (
            Finding(
                f"{text}: {decisions} of {tested} are classified as their shape or their "
                "texture, not significantly more than expected by chance "
                f"({chance:.1%}); the shape bias is not informative",
                "VP101" if categories > _FEWEST_CATEGORIES else "",
            ),
        )

    def answers(self) -> tuple[Answer, ...]:
        """The shape bias of all images."""
        return (
            Answer(
                questions.SHAPE_BIAS.text,
                SHAPE_BIAS,
                float(self.bias[-1]),
                float(self.low[-1]),
                float(self.high[-1]),
                unit="%",
                over="images",
            ),
        )
