"""Effective receptive fields: their size by block, and as maps.

Sources: Luo et al. (2016), Understanding the effective receptive field in deep convolutional
neural networks; Ding et al. (2022), Scaling up your kernels to 31x31.
"""

from typing import ClassVar

import numpy as np

from visprism.estimates import questions
from visprism.estimates.answers import Answer
from visprism.estimates.findings import Finding
from visprism.table.result import Result, result_type, scalar
from visprism.table.result import column as quantity
from visprism.table.shapes import ScalarPerBlock

SIGMA = "\N{GREEK SMALL LETTER SIGMA}"
LAST_SIGMA = f"{SIGMA} of the last block's effective receptive field"


@result_type("receptive-field")
class ReceptiveField(ScalarPerBlock):
    """Size of the effective receptive field; one row for each block. NaN where it is empty."""

    value_name: ClassVar[str] = "sigma"

    sigma: np.ndarray = quantity(
        f"Receptive field {SIGMA}",
        "pixels",
        "root mean squared distance along one axis from its center of mass",
    )
    sigma_error: np.ndarray = quantity(
        f"Standard error of {SIGMA}", "pixels", "over images; NaN for one image"
    )
    side_50: np.ndarray = quantity(
        "Side of the 50% square",
        "pixels",
        "smallest square around its center of mass that holds 50% of it",
    )
    side_95: np.ndarray = quantity(
        "Side of the 95% square",
        "pixels",
        "smallest square around its center of mass that holds 95% of it",
    )
    area_20: np.ndarray = quantity(
        "Area of the 20% square / image", "", "fraction of the image inside the square"
    )
    area_30: np.ndarray = quantity(
        "Area of the 30% square / image", "", "fraction of the image inside the square"
    )
    area_50: np.ndarray = quantity(
        "Area of the 50% square / image", "", "fraction of the image inside the square"
    )
    area_99: np.ndarray = quantity(
        "Area of the 99% square / image", "", "fraction of the image inside the square"
    )
    row: np.ndarray = quantity(
        "Row of the center of mass", "pixels", "0 is the middle of the uppermost pixel"
    )
    column: np.ndarray = quantity(
        "Column of the center of mass", "pixels", "0 is the middle of the leftmost pixel"
    )
    uniform_sigma: float = scalar(
        f"{SIGMA} of a uniform field",
        "pixels",
        "of a field that weighs all pixels of the image alike",
    )

    def findings(self) -> tuple[Finding, ...]:
        """Size at the first and at the last block that depend on the image."""
        rows = np.flatnonzero(np.isfinite(self.sigma))
        if not len(rows):
            return (Finding("the center position of no block depends on the image"),)
        ends = dict.fromkeys((int(rows[0]), int(rows[-1])))
        sizes = [f"{self._interval(i)} at {self.block[i]}" for i in ends]
        squares = [
            f"{self.side_50[i]:.0f}x{self.side_50[i]:.0f} at {self.block[i]}" for i in ends
        ]
        return (
            Finding(
                f"effective receptive field, {SIGMA}: {', '.join(sizes)}; half of it lies in a "
                f"square around its center of mass of about {', '.join(squares)} pixels"
                f"{self.over()}"
            ),
        )

    def answers(self) -> tuple[Answer, ...]:
        """Size at the last block, over that of a uniform field."""
        rows = np.flatnonzero(np.isfinite(self.sigma))
        if not len(rows):
            return ()
        value, margin = float(self.sigma[rows[-1]]), float(self.margins[rows[-1]])
        return (
            Answer(
                question=questions.RECEPTIVE_FIELD.text,
                quantity=LAST_SIGMA,
                value=value,
                low=value - margin,
                high=value + margin,
                unit="pixels",
                over="images",
                in_pixels=True,
            ),
        )


@result_type("receptive-maps")
class ReceptiveMaps(Result):
    """Receptive fields as maps; one row for each cell, for some blocks spread over the depth.

    A cell is one pixel, or a square of 2x2, 4x4, ... where the image has more than 56 a side.
    """

    block: np.ndarray = quantity("Block", "", "name of the block")
    depth: np.ndarray = quantity(
        "Normalized depth", "", "0 for the stem, 1 for the last block before the head"
    )
    row: np.ndarray = quantity("Row", "", "of the cell, counted in cells from the top")
    column: np.ndarray = quantity("Column", "", "of the cell, counted in cells from the left")
    share: np.ndarray = quantity(
        "Fraction of the field", "", "the fractions of a block add up to 1"
    )
    relative: np.ndarray = quantity(
        "Relative to the strongest cell", "", "fraction over that of the block's strongest cell"
    )
