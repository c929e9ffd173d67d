"""Noise: Gaussian, shot, impulse and speckle noise."""

from visprism.images.corruptions.corrupt import Images, Randomness, corruption


@corruption
def gaussian_noise(images: Images, scale: float | int, randomness: Randomness) -> Images:
    """Additive normal noise, as from electronics in low light."""
    return randomness.normal(*images.shape[1:]).mul_(scale).add_(images)


@corruption
def shot_noise(images: Images, photons: int, randomness: Randomness) -> Images:
    """Poisson noise, where a white pixel receives `photons` photons on average."""
    return randomness.poisson(images * photons).div_(photons)


@corruption
def impulse_noise(images: Images, share: float | int, randomness: Randomness) -> Images:
    """Salt-and-pepper noise: a fraction of the values of each channel becomes 0 or 1."""
    uniform = randomness.uniform(*images.shape[1:])
    return images.masked_fill(uniform < share, 0.0).masked_fill_(uniform < share / 2, 1.0)


@corruption
def speckle_noise(images: Images, scale: float | int, randomness: Randomness) -> Images:
    """Multiplicative normal noise."""
    return randomness.normal(*images.shape[1:]).mul_(scale).add_(1).mul_(images)
