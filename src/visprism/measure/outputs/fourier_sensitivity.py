"""Fourier sensitivity: error rate under noise of a single frequency, for each frequency.

Source: Yin et al. (2019), A Fourier perspective on model robustness in computer vision, sec. 2.
"""

from collections.abc import Iterable, Sequence
from math import inf

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, fft, nn

from visprism.core.errors import InputError
from visprism.core.rng import stream
from visprism.core.run import DEFAULT_RUN, Run
from visprism.core.statistics import mean_interval
from visprism.passes.batches import Batch
from visprism.passes.perturbed_evaluation import evaluate_perturbed
from visprism.passes.pixel_space import PixelSpace
from visprism.passes.predictions import Predictions
from visprism.results.per_image import PerImage
from visprism.results.perturbations import FourierSensitivity


def fourier_sensitivity(
    model: nn.Module,
    batches: Iterable[Batch],
    *,
    mean: Sequence[float],
    std: Sequence[float],
    rms: float = 0.1,
    max_frequency: int = 8,
    frequency_step: int = 1,
    clean: Predictions | None = None,
    run: Run = DEFAULT_RUN,
) -> tuple[FourierSensitivity, PerImage]:
    """Error rate under noise of each single frequency of the Fourier basis.

    x' = x + r v U, with U the real image of norm 1 that contains only the frequency (i, j) and
    its opposite, v = rms sqrt(h w) in each channel, and r = 1 or -1 at random for each image
    and channel. Pixels are not clipped.

    (i, j) and (-i, -j) are one basis image, so half of the plane is measured: one forward pass
    for each of about (2 max_frequency / frequency_step + 1)^2 / 2 frequencies, and one without
    noise.

    Args:
        model: in evaluation mode.
        batches: each is (images, targets), all of one size but the last.
        mean: of the normalization, by channel.
        std: of the normalization, by channel.
        rms: root mean square of the noise in each channel, in pixels of 0 ... 1. Yin et al. use
            a norm of 4 for CIFAR-10, which is 0.125, and of 15.7 for ImageNet, which is 0.07.
        max_frequency: highest frequency, in cycles over a side of the image.
        frequency_step: distance between frequencies in cycles.
        clean: predictions of the same images, where they exist already.
        run: device, precision, seed of the signs, and progress.

    Returns:
        One row per frequency, and the rise of the error of each image, mean over frequencies.

    Source: Yin et al. (2019), eq. 1 and fig. 3.
    """
    if not 1 <= max_frequency <= _HIGHEST:
        raise InputError(f"max_frequency must be between 1 and {_HIGHEST}, got {max_frequency}")
    if not 1 <= frequency_step <= max_frequency:
        raise InputError(
            f"frequency_step must be between 1 and {max_frequency} (max_frequency), got "
            f"{frequency_step}"
        )
    if not 0 < rms < inf:
        raise InputError(f"rms must be finite and positive, got {rms}")
    half = half_plane(max_frequency, frequency_step)

    def perturb(condition: int, pixels: Tensor, _targets: Tensor, indices: range) -> Tensor:
        size = (pixels.shape[-2], pixels.shape[-1])
        if 2 * max_frequency > min(size):
            raise InputError(
                f"max_frequency must be at most {min(size) // 2}, the Nyquist frequency of "
                f"{size[0]}x{size[1]} images, got {max_frequency}"
            )
        wave = basis_image(size, half[condition]).to(pixels)
        amplitude = rms * (size[0] * size[1]) ** 0.5
        return pixels + _signs(pixels, (run.seed, condition), indices) * wave * amplitude

    paired, provenance = evaluate_perturbed(
        model, batches, PixelSpace(mean, std), len(half), perturb, clean=clean, run=run
    )
    columns = paired.columns()
    # Both ends of each basis image; frequency 0 has one.
    ends = [(w, sign) for w, k in enumerate(half) for sign in ((1, -1) if any(k) else (1,))]
    row = np.array([w for w, _ in ends])
    place = np.array([[sign * half[w][0], sign * half[w][1]] for w, sign in ends])
    rises = (paired.correct[:, :1] - paired.correct[:, 1:])[:, row].mean(1)
    low, high = mean_interval(rises)
    result = FourierSensitivity(
        vertical=place[:, 0],
        horizontal=place[:, 1],
        error=1 - columns["accuracy"][row],
        error_rise=columns["drop"][row],
        error_rise_error=columns["drop_error"][row],
        clean_error=1 - paired.accuracy,
        mean_rise=float(rises.mean()),
        mean_rise_low=low,
        mean_rise_high=high,
        rms=rms,
        nyquist=min(provenance.image_shape[1:]) / 2,
        classes=paired.classes,
        provenance=provenance,
    )
    per_image = PerImage(
        quantity=np.full(paired.images, "rise of the error rate, mean over frequencies"),
        image=paired.indices,
        value=rises,
        provenance=provenance,
    )
    return result, per_image


_HIGHEST = 1024  # frequency that can be listed: of images of 2048 pixels a side


def half_plane(max_frequency: int, frequency_step: int) -> list[tuple[int, int]]:
    """One of each two opposite frequencies up to `max_frequency`, by rows."""
    multiples = [k for k in range(-max_frequency, max_frequency + 1) if k % frequency_step == 0]
    return [(i, j) for i in multiples for j in multiples if i > 0 or (i == 0 and j >= 0)]


def basis_image(size: tuple[int, int], frequency: tuple[int, int]) -> Float[Tensor, "h w"]:
    """The real image of norm 1 that contains only a frequency and its opposite."""
    spectrum = torch.zeros(size, dtype=torch.complex128)
    (height, width), (i, j) = size, frequency
    # The phase is free, but at the Nyquist frequency it must be real.
    spectrum[i % height, j % width] = 1
    spectrum[-i % height, -j % width] = 1
    image = fft.ifft2(spectrum).real
    return (image / image.norm()).float()


def _signs(like: Tensor, use: tuple[int, int], indices: range) -> Float[Tensor, "b c 1 1"]:
    seed, condition = use
    signs = [
        torch.randint(2, (like.shape[1], 1, 1), generator=stream(seed, "signs", condition, n))
        for n in indices
    ]
    return (2 * torch.stack(signs) - 1).to(like)
