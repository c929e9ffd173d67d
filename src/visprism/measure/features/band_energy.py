"""Band energy probe: gathers the fraction of a feature map's energy in its high band.

With F the Fourier transform of a channel, the energy of a band is the sum of |F|² over its
frequencies. The band above half of the Nyquist frequency (radius) is compared with all
frequencies but 0. Unlike a mean of log amplitudes, it weighs channels by their energy, and does
not depend on a reference frequency.
"""

from collections.abc import Mapping
from functools import cache

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from visprism.anatomy import Block
from visprism.core.statistics import standard_error
from visprism.measure.features.probe import Probe
from visprism.passes.blocks import (
    block_columns,
    blocks_before,
    on_one_grid,
    predecessors,
)
from visprism.passes.chunks import cache_chunks, channel_mean
from visprism.results.band_energy import BandEnergies

_EDGE = 0.5  # π rad/pixel, between the low and the high band


class BandEnergyProbe(Probe):
    """Gathers the `BandEnergies` of all blocks. Costs a 2-D transform of each map."""

    def extract(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b 2"]:
        """Energy at all frequencies but 0, and in the high band; mean over channels."""
        weights = torch.from_numpy(_bands((x.shape[2], x.shape[3]))).to(x)
        return torch.cat(
            [channel_mean(_energies(chunk, weights), x) for chunk in cache_chunks(x)]
        )

    def update(self, batch: Mapping[Block, Float[Tensor, "_ 2"]]) -> None:
        """Add one batch; see `Probe.update`."""
        by_block = {b: extract.cpu().double().numpy().T for b, extract in batch.items()}
        for block, before in blocks_before(batch).items():
            energies = by_block[block]
            earlier = np.full_like(energies, np.nan)
            if before is not None and on_one_grid(block, before):
                earlier = by_block[before]
            terms = np.concatenate([np.ones_like(energies[:1]), energies, earlier])
            self.add({block: terms @ terms.T})  # sums, and sums of products

    def result(self) -> BandEnergies:
        """The energies of every block; see `Probe.result`."""
        blocks = list(self.gathered())
        rows = [_row(self.sums[block]) for block in blocks]
        names = ("high", "high_error", "change", "change_error")
        return BandEnergies(
            **block_columns(blocks),
            **predecessors(blocks, self.between),
            **dict(zip(names, np.array(rows, dtype=float).T, strict=True)),
        )


def _row(products: Float[np.ndarray, "5 5"]) -> tuple[float, float, float, float]:
    """Fraction, change and their errors from sums of products of 1 and the energies.

    To first order an image moves the ratio of means R = h/a by (h_i - R a_i) / mean(a).
    """
    images, total, high, total_before, high_before = products[0]
    if not total > 0:
        return np.nan, np.nan, np.nan, np.nan
    fraction = high / total
    part = images * np.array([0, -fraction / total, 1 / total, 0, 0])
    error = _error(part, products, images)
    if not total_before > 0:  # or NaN
        return fraction, error, np.nan, np.nan
    before = high_before / total_before
    part -= images * np.array([0, 0, 0, -before / total_before, 1 / total_before])
    return fraction, error, fraction - before, _error(part, products, images)


def _error(
    part: Float[np.ndarray, "5"], products: Float[np.ndarray, "5 5"], images: float
) -> float:
    """Standard error of a mean of 0 whose parts by image are `part` times the terms."""
    used = part != 0
    squares = part[used] @ products[np.ix_(used, used)] @ part[used]
    return float(standard_error(np.zeros(()), np.array(squares), np.array(images)))


def _energies(
    chunk: Float[Tensor, "m h w r"], weights: Float[Tensor, "n 2"]
) -> Float[Tensor, "m 2 r"]:
    """Sums of squared amplitudes, without the mean, over both bands."""
    mean = chunk.mean((1, 2), keepdim=True)
    power = torch.fft.rfft2(chunk - mean, dim=(1, 2)).abs().square_().flatten(1, 2)
    return torch.einsum("mnr,nk->mkr", power, weights)


@cache
def _bands(grid: tuple[int, int]) -> Float[np.ndarray, "n 2"]:
    """Weight of each frequency of a half plane in all bands but 0, and in the high band."""
    along = 2 * np.fft.rfftfreq(grid[1])[None]
    radius = np.hypot(2 * np.fft.fftfreq(grid[0])[:, None], along)
    mirrored = np.where((along == 0) | (along == 1), 1.0, 2.0)  # columns that stand for two
    bands = np.stack([radius > 0, radius > _EDGE], axis=-1) * mirrored[..., None]
    return bands.reshape(-1, 2)
