"""Fourier spectra of feature maps: how much of a block's output is fine detail.

The spectrum is the mean over images and channels of the log amplitude of the feature map's
Fourier transform (`visprism.measure.features.profiles`), as a function of frequency. What
counts is what a block changes: a fall at high frequencies makes it a low-pass filter, a rise a
high-pass one.

Source: Park and Kim (2022), How do vision transformers work?, fig. 2a and 8.
"""

from collections.abc import Mapping
from typing import Literal

import numpy as np
from jaxtyping import Float
from torch import Tensor

from visprism.anatomy import Anatomy, Block
from visprism.core.errors import InputError
from visprism.core.provenance import Provenance
from visprism.core.statistics import standard_error
from visprism.measure.features import profiles
from visprism.measure.features.per_block import PerBlock, described, grid_of, on_one_grid
from visprism.measure.features.probe import Probe
from visprism.results.base import column, result_type, scalar

Profile = Literal["diagonal", "radial"]
Protocol = Literal["default", "paper"]

PROFILES = {  # how it is measured, and at which frequencies of a grid
    ("diagonal", "default"): (profiles.diagonal, profiles.diagonal_frequency),
    ("radial", "default"): (profiles.radial, profiles.radial_frequency),
    ("diagonal", "paper"): (profiles.paper_diagonal, profiles.paper_frequency),
}


@result_type("spectrum")
class Spectrum(PerBlock):
    """Log amplitude by block and spatial frequency; one row for each pair."""

    frequency: np.ndarray = column(
        "Frequency", "π rad/pixel", "in pi rad/pixel: 0 is the mean, 1 the Nyquist frequency"
    )
    log_amplitude: np.ndarray = column(
        "Log amplitude", "", "natural log, mean over channels and images"
    )
    relative: np.ndarray = column(
        "Δ log amplitude", "", "log_amplitude less its value at frequency 0"
    )
    relative_error: np.ndarray = column(
        "Relative error", "", "standard error of `relative` over images; NaN for one image"
    )
    change: np.ndarray = column(
        "Change across the block",
        "",
        "relative, less that of the block before; NaN where grids differ",
    )
    change_error: np.ndarray = column(
        "Change error", "", "its standard error over images, paired"
    )
    profile: str = scalar(
        "Profile", "", "frequency along each axis; or 'radial'", default="diagonal"
    )


@result_type("high-frequency")
class HighFrequency(PerBlock):
    """The highest frequency of a `Spectrum`; one row for each block that has one but 0."""

    frequency: np.ndarray = column(
        "Frequency", "π rad/pixel", "in pi rad/pixel, the highest on the block's grid"
    )
    relative: np.ndarray = column(
        "Δ log amplitude", "", "log amplitude less its value at frequency 0"
    )
    relative_error: np.ndarray = column("Relative error", "", "standard error over images")
    change: np.ndarray = column(
        "Change across the block",
        "",
        "relative, less that of the block before; NaN where grids differ",
    )
    change_error: np.ndarray = column(
        "Change error", "", "its standard error over images, paired"
    )
    profile: str = scalar("Profile", default="diagonal")


def high_frequency(spectrum: Spectrum) -> HighFrequency:
    """The rows of the highest frequency of each block.

    A feature map of one pixel has only frequency 0, so its block is left out.

    Source: Park and Kim (2022), fig. 8.
    """
    last = np.append(spectrum.block[1:] != spectrum.block[:-1], True)
    rows = spectrum.select(last & (spectrum.frequency > 0))
    return HighFrequency(**{k: v for k, v in vars(rows).items() if k != "log_amplitude"})


class FourierProbe(Probe):
    """Gathers the `Spectrum` of every block.

    Args:
        profile: over which frequencies: "diagonal", from the mean to the corner of the
            frequency plane, as in the paper; or "radial", the mean over all directions.
        protocol: "default", or "paper" for the numbers of the paper's code: without the
            Nyquist frequency, and with its labels of the frequency axis.

    Raises:
        InputError: if the two do not go together.
    """

    def __init__(self, profile: Profile = "diagonal", protocol: Protocol = "default") -> None:
        if (profile, protocol) not in PROFILES:
            known = "; ".join(f"{p!r} with protocol {q!r}" for p, q in PROFILES)
            raise InputError(
                f"no profile {profile!r} with protocol {protocol!r}; there is {known}"
            )
        super().__init__()
        self.profile = profile
        self.protocol = protocol

    def extract(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b k"]:
        """Log amplitude by image and frequency, mean over channels.

        Raises:
            InputError: if the grid has no such profile.
        """
        measure, _ = PROFILES[self.profile, self.protocol]
        return measure(x)

    def notes(self, anatomy: Anatomy) -> tuple[str, ...]:
        """Grids whose diagonal has fewer frequencies than their sides; see `Probe.notes`."""
        grids = dict.fromkeys(grid_of(block) for block in anatomy if block.layout is not None)
        if self.profile != "diagonal":
            return ()
        sparse = [f"{h}x{w}" for h, w in grids if profiles.common_side((h, w)) < min(h, w)]
        if not sparse:
            return ()
        return (
            f"The diagonal of a grid of {', '.join(sparse)} holds only the frequencies that "
            "both of its sides have; the radial profile (--profile radial) holds all.",
        )

    def update(self, batch: Mapping[Block, Float[Tensor, "_ _"]]) -> None:
        """Add one batch; see `Probe.update`."""
        before, relative_before = None, None
        for block, extract in batch.items():
            level = extract.cpu().double().numpy()
            relative = level - level[:, :1]
            change = np.full_like(relative, np.nan)
            if on_one_grid(block, before):
                change = relative - relative_before
            ones = np.ones_like(level)
            terms = np.stack([ones, level, relative, relative**2, change, change**2])
            self.add({block: terms.sum(1)})
            before, relative_before = block, relative

    def result(self) -> Spectrum:
        """The mean spectrum of every block; see `Probe.result`."""
        _, frequency = PROFILES[self.profile, self.protocol]
        blocks = list(self.gathered())
        axes = [frequency(grid_of(block)) for block in blocks]
        rows = [block for block, axis in zip(blocks, axes, strict=True) for _ in axis]
        sums = np.concatenate([self.sums[block] for block in blocks], axis=1)
        images, level, relative, relative_squares, change, change_squares = sums
        return Spectrum(
            **described(rows),
            frequency=np.concatenate(axes),
            log_amplitude=level / images,
            relative=relative / images,
            relative_error=standard_error(relative, relative_squares, images),
            change=change / images,
            change_error=standard_error(change, change_squares, images),
            profile=self.profile,
            provenance=Provenance(protocol=self.protocol),
        )
