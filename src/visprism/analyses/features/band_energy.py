"""Energy of feature maps in the high band of spatial frequencies, by block.

With F the Fourier transform of a channel, the energy of a band is the sum of |F|^2 over its
frequencies. The band above half of the Nyquist frequency (radius) is compared with all
frequencies but 0. Unlike a mean of log amplitudes, it weighs channels by their energy, and does
not depend on a reference frequency.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from visprism import kit
from visprism.core.devices import for_complex
from visprism.estimates.estimated import ratio

_EDGE = 0.5  # π rad/pixel, between the low and the high band


@kit.result("band-energies", "High-band energy")
class BandEnergies(kit.ScalarPerBlock, kit.ChangePerBlock):
    """Fraction of a feature map's energy in its high band; one row for each block.

    Each point is a block: the fraction of its feature maps' energy, without the mean, at
    frequencies above half of the Nyquist frequency. White noise has most of its energy
    there, since most frequencies are high.

    The energy includes all frequencies but 0, so that the mean does not count. NaN if a
    feature map does not vary or has one position.
    """

    value_name = "high"

    high: kit.Estimated = kit.estimate(
        "High-band energy",
        "",
        "fraction of the energy, without the mean, at radii above 0.5 π rad/pixel",
        reduce=kit.Reduce.ratio("above", "all"),
    )
    change: kit.Estimated = kit.estimate(
        "Change of the high-band energy",
        "",
        "minus the previous block's value; NaN if grids differ",
    )


@kit.analysis
class BandEnergy(kit.FeatureAnalysis):
    """Fraction of the energy of feature maps at high spatial frequencies."""

    name = "band-energy"
    source = "Parseval's theorem; complements Park & Kim (2022), fig. 8"
    default = False
    gives = BandEnergies

    def extract(self, x: Float[Tensor, "b c h w"]) -> dict[str, Float[Tensor, " b"]]:
        """Energy at all frequencies but 0, and in the high band; mean over channels.

        Costs a 2-D transform of each map.
        """
        deviation = x - x.mean((2, 3), keepdim=True)
        amplitude = torch.fft.rfft2(for_complex(deviation)).abs().to(x.device)
        energy = amplitude.square_().mean(1).flatten(1)
        bands = energy @ torch.from_numpy(_bands((x.shape[2], x.shape[3]))).to(x)
        return {"all": bands[:, 0], "above": bands[:, 1]}

    def results(self, seen: kit.PassResult) -> Sequence[kit.Result]:
        """The energies of every block."""
        high = ratio(seen["above"], seen["all"]).by_unit
        return (seen.result(BandEnergies, {"change": high - seen.before(high)}),)


@cache
def _bands(grid: tuple[int, int]) -> Float[np.ndarray, "n 2"]:
    """Weight of each frequency of a half plane in all bands but 0, and in the high band."""
    along = 2 * np.fft.rfftfreq(grid[1])[None]
    radius = np.hypot(2 * np.fft.fftfreq(grid[0])[:, None], along)
    mirrored = np.where((along == 0) | (along == 1), 1.0, 2.0)  # columns that stand for two
    bands = np.stack([radius > 0, radius > _EDGE], axis=-1) * mirrored[..., None]
    return bands.reshape(-1, 2)
