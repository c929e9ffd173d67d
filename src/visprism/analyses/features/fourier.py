"""Fourier spectra of feature maps by block, and their highest frequency.

The spectrum is the mean over images and channels of the log amplitude of the feature map's
Fourier transform (`visprism.passes.profiles`). What a block does is the change from the
spectrum of the previous block. Two references: the amplitude at frequency 0, as in the paper,
and that at the lowest frequency that is not 0. A block that raises the mean of its channels
lowers every other frequency relative to the first reference without filtering anything, so a
block is called low-pass or high-pass only where both references agree.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import gcd
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from torch import Tensor

from visprism import kit
from visprism.core.provenance import Provenance
from visprism.drawing.depth import against_depth, depth_bar, kinds_key, spectra
from visprism.passes import profiles
from visprism.passes.blocks import grid_of
from visprism.passes.profiles import NO_AMPLITUDE
from visprism.table.kinds import TO_LOWEST, TO_MEAN, KindSummary
from visprism.table.shapes import result_shape

PROFILES = {  # how it is measured, and at which frequencies of a grid
    ("diagonal", "default"): (profiles.diagonal, profiles.diagonal_frequency),
    ("radial", "default"): (profiles.radial, profiles.radial_frequency),
    ("diagonal", "paper"): (profiles.paper_diagonal, profiles.paper_frequency),
}
AXES = {"diagonal": "Frequency along each axis", "radial": "Radial frequency"}
_REFERENCES = {"mean": "the mean", "lowest": "the lowest frequency"}

R = TypeVar("R", bound=kit.Result)


@result_shape
class SpectrumColumns(kit.ChangePerBlock):
    """The columns that a `Spectrum` and a `HighFrequency` share."""

    frequency: np.ndarray = kit.column(
        "Frequency", "π rad/pixel", "0 is the mean, 1 the Nyquist frequency"
    )
    log_amplitude: kit.Estimated = kit.estimate(
        "Log amplitude", "", "natural logarithm, mean over channels and images"
    )
    relative: kit.Estimated = kit.estimate(
        "Δ log amplitude", "", "log amplitude minus its value at frequency 0 (the mean)"
    )
    relative_lowest: kit.Estimated = kit.estimate(
        "Δ log amplitude to the lowest frequency",
        "",
        "log amplitude minus its value at the lowest frequency that is not 0; NaN if there is "
        "only one",
    )
    change: kit.Estimated = kit.estimate(
        "Change of Δ log amplitude", "", "minus the previous block's value; NaN if grids differ"
    )
    profile: str = kit.scalar(
        "Profile",
        "",
        "'diagonal': frequencies along the diagonal; 'radial': mean over directions",
        default="diagonal",
    )


_LEVELS = ("log_amplitude", "relative", "relative_lowest")


@kit.result("spectrum", "Fourier spectrum", table=False)
class Spectrum(SpectrumColumns):
    """Log amplitude by block and spatial frequency; one row for each pair.

    Each curve is a block: the log amplitude of its feature maps at each spatial frequency,
    relative to the mean (frequency 0). What a block does is the change from the curve of
    the previous block.
    """


@kit.result(
    "high-frequency",
    "High-frequency amplitude",
    figures={"": {}, "lowest": {"reference": "lowest"}},
    overview={"Δ log amplitude,\nhighest frequency": {}},
)
class HighFrequency(kit.ScalarPerBlock, SpectrumColumns):
    """The highest frequency of a `Spectrum`; one row for each block with more than one.

    Each point is the highest frequency of a block, relative to the mean as in the paper and
    relative to the lowest frequency that is not 0. A block that raises the mean lowers the
    first without filtering anything. Changes of grid (blue) are not counted.

    Source: Park and Kim (2022), fig. 8.
    """

    value_name = "relative"

    def sentences(self) -> Iterator[str | kit.Finding]:
        """Blocks without a highest frequency, and changes that include blocks off the grid."""
        empty = self.block[np.isnan(np.asarray(self.relative))]
        if len(empty):
            yield (
                f"No amplitude at the highest frequency, so no value: {', '.join(empty)}. "
                "Nearest upsampling and constant maps have none."
            )
        yield from self.gaps()


@kit.analysis
class Fourier(kit.FeatureAnalysis):
    """Log amplitude of feature maps by spatial frequency."""

    name = "fourier"
    source = "Park & Kim (2022), fig. 2a and 8"
    claims = ("C6",)
    gives = (
        Spectrum,
        HighFrequency,
        KindSummary,
    )

    profile: Literal["diagonal", "radial"] = kit.option(
        "diagonal", "frequencies along the diagonal, or averaged over directions"
    )
    protocol: Literal["default", "paper"] = kit.option(
        "default", "frequency axis: in π rad/pixel, or as in the paper's code"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.profile, self.protocol) not in PROFILES:
            raise kit.InputError("protocol 'paper' must have profile 'diagonal', got 'radial'")

    def inapplicable(self, subject: kit.Subject) -> str | None:
        """On grids that have no such profile."""
        return super().inapplicable(subject) or without_profile(
            PROFILES[self.profile, self.protocol][0], subject.anatomy
        )

    def extract(self, x: Float[Tensor, "b c h w"]) -> dict[str, Float[Tensor, "b k"]]:
        """Log amplitude by image and frequency, mean over channels."""
        measure, _ = PROFILES[self.profile, self.protocol]
        return {"log_amplitude": measure(x)}

    def notes(self, anatomy: kit.Anatomy) -> tuple[str, ...]:
        """Grids whose diagonal has fewer frequencies than their sides."""
        sparse = [f"{h}x{w}" for h, w in _grids(anatomy) if gcd(h, w) < min(h, w)]
        if self.profile != "diagonal" or not sparse:
            return ()
        return (
            f"The diagonal of a {', '.join(sparse)} grid holds only the frequencies that both "
            "of its sides have. The radial profile holds all.",
        )

    def results(self, seen: kit.PassResult) -> Sequence[kit.Result]:
        """The spectrum, its highest frequency, and that by kind of block."""
        blocks, neighbors = seen.blocks, seen.neighbors
        levels = {b: references(x) for b, x in seen.each("log_amplitude").items()}
        steps = [
            np.full_like(levels[block], np.nan)
            if before is None
            else levels[block] - levels[before]
            for block, before in zip(blocks, neighbors.previous, strict=True)
        ]
        _, frequency = PROFILES[self.profile, self.protocol]
        columns = columns_by_frequency(blocks, frequency, _LEVELS, [*levels.values()])
        columns["change"] = kit.mean(np.concatenate([step[1] for step in steps], axis=1))
        for name, values in neighbors.columns().items():
            columns[name] = np.repeat(values, [step.shape[2] for step in steps])
        spectrum = Spectrum(
            **columns,
            profile=self.profile,
            provenance=Provenance(protocol=self.protocol),
        )
        _, to_mean, to_lowest = at_highest(steps)
        changes = {TO_MEAN: to_mean, TO_LOWEST: to_lowest}
        return spectrum, highest_rows(spectrum, HighFrequency), seen.by_kind(changes)


def _grids(blocks: Iterable[kit.Block]) -> dict[tuple[int, int], None]:
    return dict.fromkeys(grid_of(block) for block in blocks if block.layout is not None)


def without_profile(
    measure: Callable[[Tensor], Tensor], blocks: Iterable[kit.Block]
) -> str | None:
    """Why a profile cannot be taken on the grid of a block; None if it can on all."""
    reasons = (
        kit.reason_of_error(measure, torch.zeros(1, 1, *grid)) for grid in _grids(blocks)
    )
    return next(filter(None, reasons), None)


def references(level: Float[np.ndarray, "b k"]) -> Float[np.ndarray, "3 b k"]:
    """Log amplitude, and its difference from frequency 0 and from the lowest other frequency.

    NaN where the highest frequency is the lowest, and where there is no amplitude.
    """
    level = np.where(np.isclose(level, NO_AMPLITUDE), np.nan, level)
    lowest = level[:, 1:2] if level.shape[1] > 2 else np.full_like(level[:, :1], np.nan)
    return np.stack([level, level - level[:, :1], level - lowest])


def columns_by_frequency(
    blocks: Sequence[kit.Block],
    frequency: Callable[[tuple[int, int]], Float[np.ndarray, "_"]],
    names: Sequence[str],
    values: Sequence[Float[np.ndarray, "q n _"]],
) -> dict[str, Any]:
    """Columns of blocks and frequencies, and means over images of q quantities of a block."""
    axes = [frequency(grid_of(block)) for block in blocks]
    rows = [block for block, axis in zip(blocks, axes, strict=True) for _ in axis]
    means = map(kit.mean, np.concatenate(values, axis=2))
    columns = kit.block_columns(rows) | {"frequency": np.concatenate(axes)}
    return columns | dict(zip(names, means, strict=True))


def at_highest(
    values: Sequence[Float[np.ndarray, "q n _"]],
) -> Float[np.ndarray, "q n blocks"]:
    """Values of each block at its highest frequency; NaN where that is frequency 0."""
    highest = np.stack([v[:, :, -1] for v in values], axis=2)
    highest[:, :, [v.shape[2] < 2 for v in values]] = np.nan
    return highest


def highest_rows(spectrum: Any, kind: type[R]) -> R:
    """The rows of the highest frequency of each block that has more than one."""
    last = np.append(spectrum.block[1:] != spectrum.block[:-1], True)
    return kind(**vars(spectrum.select(last & (spectrum.frequency > 0))))


@kit.figure(width=2.5, height=2.3, key=depth_bar, key_width=0.75, column="relative")
def _(result: Spectrum, ax: Axes) -> Axes:
    """Log amplitude minus its value at frequency 0, a curve per block, colored by depth."""
    spectra(ax, result, "relative")
    ax.set(xlabel=f"{AXES[result.profile]} (π rad/pixel)", ylabel="Δ log amplitude")
    return ax


@kit.figure(width=2.75, height=2.0, key=kinds_key, key_height=0.25)
def _(
    result: HighFrequency, ax: Axes, *, reference: Literal["mean", "lowest"] = "mean"
) -> Axes:
    """Log amplitude at the highest frequency minus a reference, against depth."""
    name = {"mean": "relative", "lowest": "relative_lowest"}[reference]
    against_depth(ax, result, name)
    ax.set_ylabel(f"Δ log amplitude, highest\nfrequency to {_REFERENCES[reference]}")
    return ax
