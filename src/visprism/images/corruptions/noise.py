"""Noise: Gaussian, shot, impulse and speckle noise."""

from functools import lru_cache

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from visprism.images.corruptions.corrupt import Images, Randomness, corruption

_CELLS = 4096  # of a table


@corruption
def gaussian_noise(images: Images, scale: float | int, randomness: Randomness) -> Images:
    """Additive normal noise, as from electronics in low light."""
    return randomness.normal(*images.shape[1:]).mul_(scale).add_(images)


@corruption
def shot_noise(images: Images, photons: int, randomness: Randomness) -> Images:
    """Poisson noise, with a mean number of photons per white pixel."""
    levels = images.mul(255).round_().long()
    return counted(levels, randomness.uniform(*images.shape[1:]), photons).div_(photons)


def counted(
    levels: Int64[Tensor, "*b"], uniform: Float[Tensor, "*b"], photons: int
) -> Float[Tensor, "*b"]:
    """Poisson counts, clipped at `photons`.

    By inversion: the count is the number of values of the distribution function that do not
    exceed a uniform number. For nearly all numbers a table gives it directly.

    Source: Chen and Asau (1974), On generating random variates from an empirical distribution.
    """
    function, least, clear = (table.to(levels.device) for table in _poisson(photons))
    cell = levels * _CELLS + uniform.mul(_CELLS).long()
    counts = least.flatten()[cell].float()
    unclear = torch.nonzero(~clear.flatten()[cell].flatten())[:, 0]
    for indices in unclear.split(_CELLS):
        rows = function[levels.flatten()[indices]]
        exact = torch.searchsorted(rows, uniform.flatten()[indices, None].double(), right=True)
        counts.view(-1)[indices] = exact[:, 0].float()
    return counts


@lru_cache(maxsize=16)
def _poisson(photons: int) -> tuple[Tensor, Tensor, Tensor]:
    """Distribution functions by level; by cell of 0 ... 1 the least count, and if it is all."""
    mean = torch.arange(256).double() * photons / 255
    count = torch.arange(photons).double()
    function = torch.special.gammaincc(count + 1, mean[:, None])  # of 0 ... photons - 1
    edges = torch.linspace(0, 1, _CELLS + 1).double().expand(256, -1).contiguous()
    below = torch.searchsorted(function, edges, right=True)
    return function, below[:, :-1].short(), below[:, 1:] == below[:, :-1]


@corruption
def impulse_noise(images: Images, share: float | int, randomness: Randomness) -> Images:
    """Salt-and-pepper noise: a fraction of the values of each channel becomes 0 or 1."""
    uniform = randomness.uniform(*images.shape[1:])
    return images.masked_fill(uniform < share, 0.0).masked_fill_(uniform < share / 2, 1.0)


@corruption
def speckle_noise(images: Images, scale: float | int, randomness: Randomness) -> Images:
    """Multiplicative normal noise."""
    return randomness.normal(*images.shape[1:]).mul_(scale).add_(1).mul_(images)
