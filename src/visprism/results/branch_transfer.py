"""Transfer function of residual branches: what a branch passes on at each spatial frequency.

The sum of a residual block mixes what the branch does with what comes by the shortcut. The
transfer function compares the output of the branch with its input, before the sum.
"""

from typing import ClassVar

import numpy as np

from visprism.table.kinds import KindSummary
from visprism.drawing.landscape import Quantity
from visprism.results.kind_summary import summarize
from visprism.table.result import column, result_type, scalar
from visprism.table.shapes import PerBlock, ScalarPerBlock, result_shape

GAIN_TO_MEAN = "high-frequency log gain of the branch relative to the mean"
GAIN_TO_LOWEST = "high-frequency log gain of the branch relative to the lowest frequency"


@result_shape
class TransferColumns(PerBlock):
    """The columns that a `BranchTransfer` and a `HighFrequencyGain` share."""

    frequency: np.ndarray = column(
        "Frequency", "π rad/pixel", "0 is the mean, 1 the Nyquist frequency"
    )
    gain: np.ndarray = column(
        "Log gain", "", "log amplitude of the branch's output minus that of its input"
    )
    gain_error: np.ndarray = column("Standard error of the log gain", "", "over images, paired")
    relative: np.ndarray = column(
        "Δ log gain", "", "log gain minus that at frequency 0 (the mean)"
    )
    relative_error: np.ndarray = column("Standard error of Δ log gain", "", "over images")
    relative_lowest: np.ndarray = column(
        "Δ log gain to the lowest frequency",
        "",
        "log gain minus that at the lowest frequency that is not 0; NaN if there is only one",
    )
    relative_lowest_error: np.ndarray = column(
        "Standard error of Δ log gain to the lowest frequency", "", "over images"
    )
    kind_relative_error: np.ndarray = column(
        "Standard error of the kind's mean Δ log gain",
        "",
        "over images, of the mean over branches of one kind; at the highest frequency",
    )
    kind_relative_lowest_error: np.ndarray = column(
        "Standard error of the kind's mean Δ log gain to the lowest frequency",
        "",
        "over images, of the mean over branches of one kind; at the highest frequency",
    )
    profile: str = scalar(
        "Profile",
        "",
        "'diagonal': frequencies along the diagonal; 'radial': mean over directions",
        default="diagonal",
    )


@result_type("branch-transfer")
class BranchTransfer(TransferColumns):
    """Log gain of each residual branch by spatial frequency; one row for each pair."""

    def high_frequency(self) -> "HighFrequencyGain":
        """The rows of the highest frequency of each branch."""
        last = np.append(self.block[1:] != self.block[:-1], True)
        return HighFrequencyGain(**vars(self.select(last & (self.frequency > 0))))


@result_type("high-frequency-gain")
class HighFrequencyGain(ScalarPerBlock, TransferColumns):
    """Log gain at the highest frequency; one row for each residual branch."""

    value_name: ClassVar[str] = "relative_lowest"

    def summarize_by_kind(self) -> KindSummary:
        """Gain of the highest frequency by kind of block, relative to both references.

        A branch whose gain falls by both references is a low-pass filter of its input.
        """
        quantities = (
            Quantity(GAIN_TO_MEAN, "relative"),
            Quantity(GAIN_TO_LOWEST, "relative_lowest"),
        )
        return summarize(self, quantities, np.full(len(self), ""))
