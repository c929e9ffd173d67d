"""Noise: Gaussian, shot, impulse and speckle noise."""

from jaxtyping import Float
from torch import Tensor

from visprism.data.corruptions.randomness import Randomness
from visprism.data.corruptions.registry import CORRUPTIONS
from visprism.data.corruptions.scale import in_unit
from visprism.data.corruptions.severities import settings

Images = Float[Tensor, "b 3 h w"]


@CORRUPTIONS.register
@in_unit
def gaussian_noise(images: Images, severity: int, randomness: Randomness) -> Images:
    """The same normal noise everywhere, as from electronics in low light."""
    scale = settings("gaussian_noise", severity, images)
    return randomness.normal(*images.shape[1:]).mul_(scale).add_(images)


@CORRUPTIONS.register
@in_unit
def shot_noise(images: Images, severity: int, randomness: Randomness) -> Images:
    """Poisson noise: so many photons come from a white pixel."""
    photons = settings("shot_noise", severity, images)
    return randomness.poisson(images * photons).div_(photons)


@CORRUPTIONS.register
@in_unit
def impulse_noise(images: Images, severity: int, randomness: Randomness) -> Images:
    """Salt and pepper: a share of the values, colour by colour, becomes 0 or 1."""
    share = settings("impulse_noise", severity, images)
    drawn = randomness.uniform(*images.shape[1:])
    return images.masked_fill(drawn < share, 0.0).masked_fill_(drawn < share / 2, 1.0)


@CORRUPTIONS.register
@in_unit
def speckle_noise(images: Images, severity: int, randomness: Randomness) -> Images:
    """Normal noise in proportion to the value."""
    scale = settings("speckle_noise", severity, images)
    return randomness.normal(*images.shape[1:]).mul_(scale).add_(1).mul_(images)
