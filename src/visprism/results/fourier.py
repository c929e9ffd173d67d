"""Fourier spectra of feature maps by block, and their highest frequency.

Two references: the amplitude at frequency 0, as in the paper, and that at the lowest frequency
that is not 0. A block that raises the mean of its channels lowers every other frequency
relative to the first reference without filtering anything, so a block is called low-pass or
high-pass only where both references agree.

Source: Park and Kim (2022), How do vision transformers work?, fig. 2a and 8.
"""

from typing import Any, ClassVar

import numpy as np

from visprism.results.base import column, result_type, scalar
from visprism.results.findings import Finding
from visprism.results.kind_summary import (
    ABSOLUTE,
    TO_LOWEST,
    TO_MEAN,
    KindSummary,
    Quantity,
    summarize,
)
from visprism.results.shapes import BLOCK_COLUMNS, PerBlock, ScalarPerBlock, result_shape


@result_shape
class SpectrumColumns(PerBlock):
    """The columns that a `Spectrum` and a `HighFrequency` share."""

    frequency: np.ndarray = column(
        "Frequency", "π rad/pixel", "0 is the mean, 1 the Nyquist frequency"
    )
    log_amplitude: np.ndarray = column(
        "Log amplitude", "", "natural logarithm, mean over channels and images"
    )
    log_amplitude_change: np.ndarray = column(
        "Change of the log amplitude",
        "",
        "less that of the previous block; NaN if grids differ",
    )
    log_amplitude_change_error: np.ndarray = column(
        "Standard error of the change of the log amplitude", "", "over images, paired"
    )
    relative: np.ndarray = column(
        "Δ log amplitude", "", "log amplitude minus its value at frequency 0 (the mean)"
    )
    relative_error: np.ndarray = column(
        "Standard error of Δ log amplitude", "", "over images; NaN for one image"
    )
    change: np.ndarray = column(
        "Change of Δ log amplitude", "", "less that of the previous block; NaN if grids differ"
    )
    change_error: np.ndarray = column(
        "Standard error of the change of Δ log amplitude", "", "over images, paired"
    )
    relative_lowest: np.ndarray = column(
        "Δ log amplitude to the lowest frequency",
        "",
        "log amplitude minus its value at the lowest frequency that is not 0; NaN if there is "
        "only one",
    )
    relative_lowest_error: np.ndarray = column(
        "Standard error of Δ log amplitude to the lowest frequency", "", "over images"
    )
    change_lowest: np.ndarray = column(
        "Change of Δ log amplitude to the lowest frequency",
        "",
        "less that of the previous block; NaN if grids differ",
    )
    change_lowest_error: np.ndarray = column(
        "Standard error of the change of Δ log amplitude to the lowest frequency",
        "",
        "over images, paired",
    )
    kind_log_amplitude_change_error: np.ndarray = column(
        "Standard error of the kind's mean change of the log amplitude",
        "",
        "over images, of the mean over blocks of one kind; at the highest frequency",
    )
    kind_change_error: np.ndarray = column(
        "Standard error of the kind's mean change",
        "",
        "over images, of the mean over blocks of one kind; at the highest frequency",
    )
    kind_change_lowest_error: np.ndarray = column(
        "Standard error of the kind's mean change to the lowest frequency",
        "",
        "over images, of the mean over blocks of one kind; at the highest frequency",
    )
    previous: np.ndarray = column(
        "Previous block", "", "block that the changes refer to; empty if there is none"
    )
    between: np.ndarray = column(
        "Blocks between", "", "blocks between the two that do not lie on a grid; usually empty"
    )
    profile: str = scalar(
        "Profile",
        "",
        "'diagonal': frequencies along the diagonal; 'radial': mean over directions",
        default="diagonal",
    )


def _upgrade(values: dict[str, Any]) -> dict[str, Any]:
    """Files of 0.1 have one reference, and no errors by kind."""
    rows = len(values["block"])
    unknown = {
        name: np.full(rows, np.nan)
        for name, info in SpectrumColumns.infos().items()
        if name not in (*BLOCK_COLUMNS, "stream", "previous", "between", "profile")
        and info.label
    }
    texts = {name: np.full(rows, "") for name in ("previous", "between")}
    return unknown | texts | values


@result_type("spectrum", schema=1, upgrades={0: _upgrade})
class Spectrum(SpectrumColumns):
    """Log amplitude by block and spatial frequency; one row for each pair."""

    def high_frequency(self) -> "HighFrequency":
        """The rows of the highest frequency of each block.

        A feature map of one pixel has only frequency 0, so its block is left out.

        Source: Park and Kim (2022), fig. 8.
        """
        last = np.append(self.block[1:] != self.block[:-1], True)
        rows = self.select(last & (self.frequency > 0))
        return HighFrequency(**vars(rows))


@result_type("high-frequency", schema=1, upgrades={0: _upgrade})
class HighFrequency(ScalarPerBlock, SpectrumColumns):
    """The highest frequency of a `Spectrum`; one row for each block."""

    value_name: ClassVar[str] = "relative"

    def summarize_by_kind(self) -> KindSummary:
        """Change at the highest frequency across the blocks of each kind, by both references.

        Counted are blocks on the grid of the previous block with no block off the grid between
        them; blocks that subsample are left out. The intervals are over images: they describe
        this network. `replicate_by_kind` gives intervals over trained seeds.
        """
        return summarize(
            self,
            (
                Quantity(TO_MEAN, "change"),
                Quantity(TO_LOWEST, "change_lowest"),
                Quantity(ABSOLUTE, "log_amplitude_change"),
            ),
            self.between,
        )

    def findings(self) -> tuple[Finding, ...]:
        """Blocks whose change includes that of blocks off the grid."""
        return gaps(self.block, self.previous, self.between)


def gaps(block: np.ndarray, previous: np.ndarray, between: np.ndarray) -> tuple[Finding, ...]:
    """A finding for each block whose change refers to a block before one off the grid."""
    return tuple(
        Finding(
            f"the change across {b} refers to {p}; it includes {missing}, whose output does "
            "not lie on a grid, and is not counted by kind"
        )
        for b, p, missing in zip(block, previous, between, strict=True)
        if missing and p
    )
