"""Noise: Gaussian, shot, impulse and speckle noise."""

from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor

from visprism.images.corruptions.corrupt import Images, Randomness, corruption


@corruption
def gaussian_noise(images: Images, scale: float | int, randomness: Randomness) -> Images:
    """Additive normal noise, as from electronics in low light."""
    return randomness.normal(*images.shape[1:]).mul_(scale).add_(images)


@corruption
def shot_noise(images: Images, photons: int, randomness: Randomness) -> Images:
    """Poisson noise, clipped at `photons`, the mean number of photons per white pixel.

    By inversion: the count is the number of values of the distribution function that do not
    exceed a uniform number.
    """
    levels = images.mul(255).round_().long()
    uniform = randomness.uniform(*images.shape[1:]).double()
    place = torch.searchsorted(
        _poisson(photons).to(images.device), levels + uniform, right=True
    )
    return (place - levels * photons).float().div_(photons)


@lru_cache(maxsize=16)
def _poisson(photons: int) -> Float[Tensor, " {256*photons}"]:
    """The level plus the distribution function of 0 ... `photons` - 1, for all 256 levels."""
    level = torch.arange(256).double()[:, None]
    count = torch.arange(photons).double()
    function = torch.special.gammaincc(count + 1, level * photons / 255)
    # Uniform numbers are multiples of 2^-24; a sum with a smaller value would lose it.
    return (level + function.clamp(min=2**-25)).flatten()


@corruption
def impulse_noise(images: Images, share: float | int, randomness: Randomness) -> Images:
    """Salt-and-pepper noise: a fraction of the values of each channel becomes 0 or 1."""
    uniform = randomness.uniform(*images.shape[1:])
    return images.masked_fill(uniform < share, 0.0).masked_fill_(uniform < share / 2, 1.0)


@corruption
def speckle_noise(images: Images, scale: float | int, randomness: Randomness) -> Images:
    """Multiplicative normal noise."""
    return randomness.normal(*images.shape[1:]).mul_(scale).add_(1).mul_(images)
