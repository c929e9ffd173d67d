"""Weather: snow, frost and fog; brightness is in `digital`, with saturation."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from visprism.images.corruptions.corrupt import Images, Randomness, corruption
from visprism.images.corruptions.filters import gaussian, motion_blurred, zoomed

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
    """Snow without motion: enlarged noise above a threshold."""
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


# Spatter: drops of water or mud on the lens.

Layer = Float[Tensor, "b h w"]  # eight-bit numbers, 0 to 255, where nothing else is said

_WATER = (175 / 255, 238 / 255, 238 / 255)  # pale turquoise
_MUD = (63 / 255, 42 / 255, 20 / 255)
_FARTHEST = 20  # pixels: what is farther from an edge counts as so far
_WEAK, _STRONG = 50, 150  # gradients of an edge
_ASLANT = ((-2, -1, 0), (-1, 1, 1), (0, 1, 2))  # light from the upper left


@corruption
def spatter(images: Images, parameters: Sequence, randomness: Randomness) -> Images:
    """Drops where smooth noise is high: with refracting edges for water, opaque for mud."""
    mean, deviation, sigma, threshold, strength, liquid = parameters
    layer = gaussian(deviation * randomness.normal(*images.shape[2:]) + mean, sigma)
    layer = torch.where(layer < threshold, 0.0, layer)
    if liquid == "mud":
        covered = gaussian((layer > threshold).float(), strength)
        covered = torch.where(covered < 0.8, 0.0, covered)[:, None]
        return images * (1 - covered) + covered * _color(_MUD, images)
    drops = (layer * 255).clamp_(0, 255).floor_()
    film = drops * relief(drops)
    # An image without a drop has nothing to divide by.
    film = strength * film / film.amax((1, 2), keepdim=True).clamp(min=1)
    return images + film[:, None] * _color(_WATER, images)


def relief(drops: Layer) -> Layer:
    """How bright the light makes each place: by the distance to the edge of a drop, lit aslant.

    Source: the published code, which does each of these steps in OpenCV.
    """
    from scipy import ndimage  # takes a while to import

    reliefs = []
    for layer in drops.cpu().numpy():
        even = equalized(np.floor(_box(distances(edges(layer)))))
        lit = ndimage.correlate(even, _ASLANT, mode="mirror").clip(0, 255)
        reliefs.append(_box(lit).round())
    return torch.from_numpy(np.array(reliefs)).to(drops.device)


def edges(layer: Float[np.ndarray, "h w"]) -> Bool[np.ndarray, "h w"]:
    """Canny's edges: ridges of the gradient above 150, and those above 50 that join them.

    Source: Canny (1986), A computational approach to edge detection; the sum of absolute
    derivatives as the gradient's size, and the four sectors, as in OpenCV.
    """
    from scipy import ndimage

    down, across = (ndimage.sobel(layer, axis, mode="nearest") for axis in (0, 1))
    size = np.abs(across) + np.abs(down)
    near = np.pad(size, 1)
    height, width = size.shape

    def at(dy: int, dx: int) -> Float[np.ndarray, "h w"]:
        return near[1 + dy : 1 + dy + height, 1 + dx : 1 + dx + width]

    level = np.abs(down) < 0.41421356 * np.abs(across)
    upright = np.abs(down) > 2.41421356 * np.abs(across)
    falls = across * down < 0  # to the upper right
    ridge = np.select(
        [level, upright, falls],
        [
            (size > at(0, -1)) & (size >= at(0, 1)),
            (size > at(-1, 0)) & (size >= at(1, 0)),
            (size > at(-1, 1)) & (size > at(1, -1)),
        ],
        (size > at(-1, -1)) & (size > at(1, 1)),
    )
    strong, weak = ridge & (size > _STRONG), ridge & (size > _WEAK)
    return ndimage.binary_propagation(strong, np.ones((3, 3)), mask=weak)


def distances(near: Bool[np.ndarray, "h w"]) -> Float[np.ndarray, "h w"]:
    """Distance of each pixel to the nearest marked one; 20 where it is farther."""
    from scipy import ndimage

    if not near.any():
        return np.full(near.shape, _FARTHEST, np.float32)
    far = np.asarray(ndimage.distance_transform_edt(~near), np.float32)
    return far.clip(max=_FARTHEST)


def equalized(layer: Float[np.ndarray, "h w"]) -> Float[np.ndarray, "h w"]:
    """Histogram equalisation: values by their rank, so that all become about equally frequent.

    The lowest value becomes 0 and the highest 255; a layer of one value stays as it is.
    """
    values = layer.astype(int)
    counts = np.bincount(values.ravel())
    others = values.size - counts[values.min()]
    if not others:
        return layer
    ranks = (counts.cumsum() - counts[values.min()]).astype(np.float32)
    return (ranks * (1 / np.float32(others) * 255)).round()[values]


def _box(layer: Float[np.ndarray, "h w"]) -> Float[np.ndarray, "h w"]:
    """Mean of 3x3 pixels."""
    from scipy import ndimage

    return ndimage.correlate(layer, np.ones((3, 3)), mode="mirror") / 9


def _color(color: tuple[float | int, ...], images: Images) -> Float[Tensor, "3 1 1"]:
    return torch.tensor(color, device=images.device)[:, None, None]
