"""Weather: snow, frost and fog; brightness is in `digital`, with saturation."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from visprism.images.corruptions.corrupt import Images, Randomness, corruption
from visprism.images.corruptions.filters import motion_blurred, zoomed

# Mean color, standard deviation within 224x224 pixels, and exponent of the power spectrum, as
# measured on the five photographs of ice that the published code lays over images.
_ICE = (
    ((0.32, 0.59, 0.65), 0.062, -1.70),
    ((0.78, 0.80, 0.83), 0.078, -1.64),
    ((0.78, 0.80, 0.83), 0.078, -1.64),
    ((0.56, 0.62, 0.67), 0.105, -1.23),
    ((0.41, 0.45, 0.50), 0.140, -1.78),
)

_GRAY = (0.299, 0.587, 0.114)  # ITU-R BT.601, as OpenCV has it


@corruption
def fog(images: Images, parameters: Sequence, randomness: Randomness) -> Images:
    """A layer of clouds, scaled so that the maximum stays."""
    strength, decay = parameters
    height, width = images.shape[2:]
    side = 1 << (max(height, width) - 1).bit_length()
    clouds = plasma(side, decay, randomness)[:, None, :height, :width]
    brightest = images.amax((1, 2, 3), keepdim=True)
    return (images + strength * clouds) * (brightest / (brightest + strength))


@corruption
def frost(images: Images, parameters: Sequence, randomness: Randomness) -> Images:
    """A layer of ice, which is generated, not photographed; see `ice`."""
    of_image, of_ice = parameters
    return of_image * images + of_ice * ice(images.shape[2:], randomness)


@corruption
def snow(images: Images, parameters: Sequence, randomness: Randomness) -> Images:
    """Flakes that fall at 45 to 135 degrees, over an image that is a little whiter."""
    mean, deviation, zoom, threshold, radius, sigma, share = parameters
    flakes = flakes_of(images.shape[2:], (mean, deviation, zoom, threshold), randomness)
    angles = (90 * randomness.uniform(1)[:, 0] - 135).tolist()
    fallen = torch.stack(
        [
            motion_blurred(layer, radius, sigma, angle)
            for layer, angle in zip(flakes, angles, strict=True)
        ]
    )
    return snowed(images, fallen, share)


def flakes_of(
    size: Sequence[int], looks: Sequence[float | int], randomness: Randomness
) -> Float[Tensor, "b h w"]:
    """Snow without motion: enlarged noise above a threshold.

    Args:
        size: of the images, (height, width).
        looks: mean and standard deviation of the noise, zoom factor, and threshold.
        randomness: of each image.
    """
    mean, deviation, zoom, threshold = looks
    layer = zoomed(deviation * randomness.normal(*size)[:, None] + mean, zoom)[:, 0]
    return torch.where(layer < threshold, 0.0, layer).clamp_(0, 1).mul_(255).floor_().div_(255)


def snowed(images: Images, layer: Float[Tensor, "b h w"], share: float | int) -> Images:
    """Whitened images with the layer of snow and its rotation by 180 degrees."""
    weights = torch.tensor(_GRAY, device=images.device)[:, None, None]
    gray = (images * weights).sum(1, keepdim=True)
    white = share * images + (1 - share) * torch.maximum(images, 1.5 * gray + 0.5)
    layer = layer.mul(255).round_().div_(255)[:, None]
    return white + layer + layer.flip(2, 3)


def plasma(
    side: int, decay: float | int, randomness: Randomness
) -> Float[Tensor, "b side side"]:
    """Clouds by the diamond-square algorithm, in 0 ... 1, with periodic borders.

    Each round fills in the middles of squares and then of their edges, with the mean of the
    four points about and noise that is `decay` squared times weaker than in the round before.

    Args:
        side: a power of two.
        decay: of the noise.
        randomness: of each image.

    Source: Fournier, Fussell and Carpenter (1982), Computer rendering of stochastic models.
    """
    uniform = 2 * randomness.uniform(side * side) - 1
    heights = torch.zeros(len(uniform), side, side, device=uniform.device)
    used, step, strength = 0, side, 100.0

    def filled(total: Tensor) -> Tensor:
        nonlocal used
        number = total.shape[1] * total.shape[2]
        noise = uniform[:, used : used + number].view_as(total)
        used += number
        return total / 4 + strength**2 * noise

    while step >= 2:
        half = step // 2
        corner = heights[:, ::step, ::step]
        pairs = corner + corner.roll(-1, 1)
        middle = filled(pairs + pairs.roll(-1, 2))
        heights[:, half::step, half::step] = middle
        upright = middle + middle.roll(1, 1) + corner + corner.roll(-1, 2)
        level = middle + middle.roll(1, 2) + corner + corner.roll(-1, 1)
        heights[:, ::step, half::step] = filled(upright)
        heights[:, half::step, ::step] = filled(level)
        step, strength = half, strength / decay
    low, high = heights.amin((1, 2), keepdim=True), heights.amax((1, 2), keepdim=True)
    return (heights - low) / (high - low)


def ice(size: Sequence[int], randomness: Randomness) -> Float[Tensor, "b 3 h w"]:
    """Frosted glass: noise with the color, contrast and spectrum of a photograph of ice.

    Normal noise, colored by a power of the frequency. Phases are random, so that it lacks the
    needles of the photographs.
    """
    height, width = size
    kinds = [_ICE[i] for i in randomness.integers(0, len(_ICE), 1)[:, 0].tolist()]
    noise = randomness.normal(height, width)
    down = torch.fft.fftfreq(height, device=noise.device)
    across = torch.fft.rfftfreq(width, device=noise.device)
    frequency = (down[:, None] ** 2 + across**2).sqrt()
    frequency[0, 0] = torch.inf  # the mean is the color's
    fields = []
    for field, (color, deviation, slope) in zip(noise, kinds, strict=True):
        waves = torch.fft.rfft2(field) * frequency ** (slope / 2)
        smooth = torch.fft.irfft2(waves, s=(height, width))
        gray = smooth * (deviation / smooth.std())
        fields.append(gray + torch.tensor(color, device=noise.device)[:, None, None])
    return torch.stack(fields).clamp_(0, 1)
