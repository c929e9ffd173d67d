"""Fourier spectrum over the whole frequency plane."""

from typing import ClassVar

import numpy as np

from visprism.estimates.findings import Finding
from visprism.estimates.text import interval_text
from visprism.table.result import column as quantity
from visprism.table.result import result_type, scalar
from visprism.table.shapes import Pictures


@result_type("fourier-plane")
class FourierPlane(Pictures):
    """Log amplitude of feature maps by vertical and horizontal frequency; a row for each pair.

    A picture is a block, the output of a residual branch or that of an attention head. The
    frequency 0 is in the middle. Intervals are over images.
    """

    value_name: ClassVar[str] = "relative"

    vertical: np.ndarray = quantity("Vertical frequency", "π rad/pixel", "-1 to 1")
    horizontal: np.ndarray = quantity("Horizontal frequency", "π rad/pixel", "-1 to 1")
    log_amplitude: np.ndarray = quantity(
        "Log amplitude", "", "mean over images and channels of log |F|"
    )
    relative: np.ndarray = quantity("Δ log amplitude", "", "minus that at frequency 0")
    relative_error: np.ndarray = quantity(
        "Standard error", "", "of the difference, over images"
    )
    parts: str = scalar("Parts", "", "'blocks', 'branches' or 'heads'")

    def findings(self) -> tuple[Finding, ...]:
        """Horizontal minus vertical log amplitude of the first and last picture."""
        names = list(self.pictures())
        chosen = dict.fromkeys((names[0], names[-1]))
        return tuple(Finding(self._corner_text(name)) for name in chosen)

    def _corner_text(self, name: str) -> str:
        rows = self.select(self.picture == name)
        highest = rows.vertical.min(), rows.horizontal.min()
        corner = np.flatnonzero((rows.vertical == highest[0]) & (rows.horizontal == highest[1]))
        row = int(corner[0])
        low, high = (float(ends[row]) for ends in rows.intervals)
        return (
            f"Δ log amplitude of {name} "
            f"{interval_text(float(rows.relative[row]), low, high)} at the highest frequency "
            f"in both directions; intervals over {self.units_text}"
        )
