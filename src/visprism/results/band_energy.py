"""Energy of feature maps in the high band of spatial frequencies, by block."""

from typing import ClassVar

import numpy as np

from visprism.table.result import column, result_type
from visprism.table.shapes import ScalarPerBlock


@result_type("band-energies")
class BandEnergies(ScalarPerBlock):
    """Fraction of a feature map's energy in its high band; one row for each block.

    The energy is that of all frequencies but 0, so that the mean does not count. NaN where a
    feature map does not vary or has one position.
    """

    value_name: ClassVar[str] = "high"

    high: np.ndarray = column(
        "High-band energy",
        "",
        "fraction of the energy, without the mean, at radii above 0.5 π rad/pixel",
    )
    high_error: np.ndarray = column(
        "Standard error of the high-band energy", "", "over images, by the delta method"
    )
    change: np.ndarray = column(
        "Change of the high-band energy",
        "",
        "less that of the previous block; NaN if grids differ",
    )
    change_error: np.ndarray = column(
        "Standard error of the change", "", "over images, by the delta method, paired"
    )
    previous: np.ndarray = column(
        "Previous block", "", "block that the changes refer to; empty if there is none"
    )
    between: np.ndarray = column(
        "Blocks between", "", "blocks between the two that do not lie on a grid; usually empty"
    )
