"""Fourier probe: gathers the log amplitude of feature maps by spatial frequency.

The spectrum is the mean over images and channels of the log amplitude of the feature map's
Fourier transform (`visprism.measure.features.profiles`), as a function of frequency. The effect
of a block is the change from the spectrum of the previous block.

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
from visprism.measure.features.per_block import (
    block_columns,
    blocks_before,
    grid_of,
    image_sums,
    kind_means,
    on_one_grid,
    predecessors,
)
from visprism.measure.features.probe import Probe
from visprism.results.fourier import Spectrum
from visprism.results.kind_summary import TO_LOWEST, TO_MEAN, mean_change

Profile = Literal["diagonal", "radial"]
Protocol = Literal["default", "paper"]

PROFILES = {  # how it is measured, and at which frequencies of a grid
    ("diagonal", "default"): (profiles.diagonal, profiles.diagonal_frequency),
    ("radial", "default"): (profiles.radial, profiles.radial_frequency),
    ("diagonal", "paper"): (profiles.paper_diagonal, profiles.paper_frequency),
}

# What is summed over images, each with its square: the log amplitude, less that at frequency 0,
# and less that at the lowest frequency that is not 0; then the changes of these three.
_REFERENCES = ("log_amplitude", "relative", "relative_lowest")
_CHANGES = ("log_amplitude_change", "change", "change_lowest")
_ANSWERS = {"change": TO_MEAN, "change_lowest": TO_LOWEST}  # whose means answer a question


class FourierProbe(Probe):
    """Gathers the `Spectrum` of every block.

    Args:
        profile: over which frequencies: "diagonal", from the mean to the corner of the
            frequency plane, as in the paper; or "radial", the mean over all directions.
        protocol: "default", or "paper" for the numbers of the paper's code: without the
            Nyquist frequency, and with its labels of the frequency axis.
    """

    def __init__(self, profile: Profile = "diagonal", protocol: Protocol = "default") -> None:
        if (profile, protocol) not in PROFILES:
            pairs = "; ".join(f"{p!r} with {q!r}" for p, q in PROFILES)
            raise InputError(
                f"profile with protocol must be one of {pairs}, got {profile!r} with "
                f"{protocol!r}"
            )
        super().__init__()
        self.profile = profile
        self.protocol = protocol

    def extract(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b k"]:
        """Log amplitude by image and frequency, mean over channels."""
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
            f"The diagonal of a {', '.join(sparse)} grid holds only the frequencies that both "
            "of its sides have. The radial profile holds all.",
        )

    def update(self, batch: Mapping[Block, Float[Tensor, "_ _"]]) -> None:
        """Add one batch; see `Probe.update`."""
        by_block = {b: references(x.cpu().double().numpy()) for b, x in batch.items()}
        highest: list[dict[Block, np.ndarray]] = [{} for _ in _CHANGES]
        for block, before in blocks_before(batch).items():
            levels = by_block[block]
            changes = np.full_like(levels, np.nan)
            if before is not None and on_one_grid(block, before):
                changes = levels - by_block[before]
                for i, at_highest in enumerate(highest):
                    if levels.shape[2] > _FEWEST[i]:
                        at_highest[block] = changes[i, :, -1]
            terms = np.concatenate([levels, changes])
            count = np.full((1, levels.shape[2]), float(levels.shape[1]))
            self.add({block: np.concatenate([count, terms.sum(1), (terms**2).sum(1)])})
        for name, at_highest in zip(_CHANGES, highest, strict=True):
            for kind, means in kind_means(at_highest, self.between).items():
                self.add({(name, kind): image_sums(means)})
                if name in _ANSWERS:
                    self.record(mean_change(_ANSWERS[name], kind), means)

    def result(self) -> Spectrum:
        """The mean spectrum of every block; see `Probe.result`."""
        _, frequency = PROFILES[self.profile, self.protocol]
        blocks = [key for key in self.gathered() if isinstance(key, Block)]
        axes = [frequency(grid_of(block)) for block in blocks]
        lengths = [len(axis) for axis in axes]
        rows = [block for block, n in zip(blocks, lengths, strict=True) for _ in range(n)]
        sums = np.concatenate([self.sums[block] for block in blocks], axis=1)
        images, total, squares = sums[0], sums[1:7], sums[7:]
        error = standard_error(total, squares, np.broadcast_to(images, total.shape))
        names = (*_REFERENCES, *_CHANGES)
        columns = dict(zip(names, total / images, strict=True))
        errors = {f"{name}_error": e for name, e in zip(names, error, strict=True)}
        del errors["log_amplitude_error"]
        neighbors = predecessors(blocks, self.between)
        return Spectrum(
            **block_columns(rows),
            **{name: np.repeat(values, lengths) for name, values in neighbors.items()},
            **columns,
            **errors,
            **{
                f"kind_{name}_error": self.kind_errors(name, blocks, lengths)
                for name in _CHANGES
            },
            frequency=np.concatenate(axes),
            profile=self.profile,
            provenance=Provenance(protocol=self.protocol),
        )


# Frequencies that a block must exceed for its highest one to be unlike the reference.
_FEWEST = (1, 1, 2)


def references(level: Float[np.ndarray, "b k"]) -> Float[np.ndarray, "3 b k"]:
    """Log amplitude, and less its value at frequency 0 and at the lowest other frequency."""
    lowest = (
        level[:, 1:2] if level.shape[1] > _FEWEST[2] else np.full_like(level[:, :1], np.nan)
    )
    return np.stack([level, level - level[:, :1], level - lowest])
