"""Sequences: an image that is perturbed from frame to frame, as in ImageNet-P."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from visprism.core.errors import InputError
from visprism.images.corruptions.corrupt import Images, Randomness, check_images, eight_bit
from visprism.images.corruptions.digital import brightened
from visprism.images.corruptions.filters import (
    motion_blurred,
    rotated,
    scaled,
    tilted,
    translated,
)
from visprism.images.corruptions.severities import SIZES, table_for
from visprism.images.corruptions.weather import flakes_of, snowed

Frames = list[Float[Tensor, "b 3 h w"]]

# For images of the size of CIFAR, Tiny ImageNet and ImageNet.
_SETTINGS = {
    "gaussian_noise": (0.02, 0.025, 0.03),  # standard deviation
    "shot_noise": (700, 500, 300),  # photons of a white pixel
    "motion_blur": ((6, 1.8, 21, 9), (14, 3, 31, 5), (10, 3, 31, 4)),  # ..., frames, degrees
    "zoom_blur": (0.004, 0.004, 0.004),  # step
    # mean, deviation, zoom, threshold, and the blur's radius and sigma
    "snow": (
        (0.05, 0.3, 2, 0.5, 10, 2), (0.05, 0.28, 2, 0.5, 10, 2.5), (0.05, 0.3, 3, 0.5, 14, 4),
    ),
    "brightness": (0.015, 0.02, 0.02),  # step
    "translate": ((16, 7), (31, 15), (41, 20)),  # frames, and pixels of the first
    "rotate": (1.0, 1.0, 1.0),  # degrees of a step
    "tilt": (0.75, 1.0, 1.0),  # the same
    "scale": ((0.7, 0.02), (0.4, 0.025), (0.4, 0.025)),  # of the first frame, and a step
}  # fmt: skip
PERTURBATIONS = tuple(_SETTINGS)


def sequence(
    images: UInt8[Tensor, "b 3 h w"],
    perturbation: str,
    *,
    seed: int = 0,
    numbers: Sequence[int] | None = None,
) -> UInt8[Tensor, "b frames 3 h w"]:
    """Each image as a sequence of frames, as in CIFAR-10-P and ImageNet-P.

    31 frames, but for motion_blur and translate of small images (21 and 16) and translate of
    large ones (41). Noise is drawn for each frame separately, and the first frame is clean; all
    else changes step by step. Pixels from beyond the border are black.

    Source: Hendrycks and Dietterich (2019), sec. 3.2, and the code that they published.
    """
    if perturbation not in PERTURBATIONS:
        raise InputError(
            f"perturbation must be one of {', '.join(PERTURBATIONS)}, got {perturbation!r}"
        )
    check_images(images)
    numbers = range(len(images)) if numbers is None else numbers
    randomness = Randomness(seed, f"sequence {perturbation}", numbers, images.device)
    setting = _SETTINGS[perturbation][SIZES.index(table_for(*images.shape[2:]))]
    frames = _MAKERS[perturbation](images.float().div_(255), setting, randomness)
    return torch.stack([eight_bit(frame) for frame in frames], dim=1)


@dataclass(frozen=True)
class SequenceBatches:
    """Batches of normalized sequences (images, frames, 3, H, W); the same in every pass."""

    pixels: Callable[[], Iterable[tuple[Sequence[int], Tensor]]]  # indices, and eight-bit RGB
    perturbation: str
    mean: Sequence[float]
    std: Sequence[float]
    seed: int = 0

    def __iter__(self) -> Iterator[Float[Tensor, "b frames 3 h w"]]:
        for indices, images in self.pixels():
            frames = sequence(images, self.perturbation, seed=self.seed, numbers=indices)
            mean, std = (torch.tensor(v)[:, None, None] for v in (self.mean, self.std))
            yield (frames.float() / 255 - mean) / std


def _gaussian_noise(images: Images, scale: float | int, randomness: Randomness) -> Frames:
    noise = (scale * randomness.normal(*images.shape[1:]) for _ in range(30))
    return [images, *(images + frame_noise for frame_noise in noise)]


def _motion_blur(
    images: Images, setting: tuple[int, float | int, int, int], randomness: Randomness
) -> Frames:
    radius, sigma, frames, step = setting
    angles = [(i - frames + 1) * step for i in range(frames)]
    flat = images.flatten(0, 1)  # all images move by the same amount
    return [motion_blurred(flat, radius, sigma, a).view_as(images) for a in angles]


def _zoom_blur(images: Images, step: float | int, randomness: Randomness) -> Frames:
    total, frames = images.clone(), [images]
    for i in range(1, 31):
        total += scaled(images, 1 + step * i)
        frames.append(total / (i + 1))
    return frames


def _snow(images: Images, setting: tuple[float | int, ...], randomness: Randomness) -> Frames:
    *looks, radius, sigma = setting
    flakes = flakes_of(images.shape[2:], looks, randomness)
    fallen = (motion_blurred(flakes, int(radius), sigma, 4 * i - 150) for i in range(31))
    return [snowed(images, layer, 0.85) for layer in fallen]


# Arguments: the images, the setting, the randomness.
_MAKERS: dict[str, Callable[..., Frames]] = {
    "gaussian_noise": _gaussian_noise,
    "shot_noise": lambda x, photons, r: [
        x,
        *(r.poisson(x * photons) / photons for _ in range(30)),
    ],
    "motion_blur": _motion_blur,
    "zoom_blur": _zoom_blur,
    "snow": _snow,
    "brightness": lambda x, step, _: [brightened(x, step * (i - 15)) for i in range(31)],
    "translate": lambda x, setting, _: [
        translated(x, i - setting[1]) for i in range(setting[0])
    ],
    "rotate": lambda x, step, _: [rotated(x, step * (i - 15)) for i in range(31)],
    "tilt": lambda x, step, _: [tilted(x, step * (i - 15)) for i in range(31)],
    "scale": lambda x, setting, _: [scaled(x, setting[0] + setting[1] * i) for i in range(31)],
}
