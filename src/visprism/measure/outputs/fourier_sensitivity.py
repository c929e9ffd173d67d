"""Fourier sensitivity: the error under noise of a single frequency, for every one.

Source: Yin et al. (2019), A Fourier perspective on model robustness in computer vision, sec. 2.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import inf

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, fft, nn

from visprism.core.devices import CPU, Compute
from visprism.core.errors import InputError
from visprism.core.provenance import Provenance
from visprism.core.rng import stream
from visprism.measure.batches import Batch
from visprism.measure.outputs.perturbed_evaluation import Progress, evaluate_perturbed
from visprism.measure.outputs.pixel_space import PixelSpace
from visprism.results.base import Result, column, result_type, scalar


@result_type("fourier-sensitivity")
class FourierSensitivity(Result):
    """One row for each frequency of the plane; of two opposite ones the values are the same."""

    vertical: np.ndarray = column(
        "Cycles over the height", "", "cycles over the height of the image; negative ones too"
    )
    horizontal: np.ndarray = column("Over the width", "", "over the width")
    error: np.ndarray = column(
        "Error rate", "", "share of wrong images under noise of this frequency"
    )
    error_rise: np.ndarray = column("Rise", "", "less that of images as they are")
    error_rise_error: np.ndarray = column(
        "Error rise error", "", "standard error, paired by image"
    )
    clean_error: float = scalar("Clean error", default=float("nan"))
    rms: float = scalar("Rms", "", "of the noise, in pixels of 0 ... 1", default=float("nan"))
    nyquist: float = scalar("Nyquist", "", "cycles over the shorter side", default=float("nan"))

    def sentences(self) -> list[str]:
        """What was found, with its numbers."""
        worst = int(self.error.argmax())
        place = f"({self.vertical[worst]}, {self.horizontal[worst]})"
        return [
            f"A wave of {place} cycles makes {self.error[worst]:.1%} of the images wrong, the "
            f"mean of all {len(self)} directions {self.error.mean():.1%}; without, "
            f"{self.clean_error:.1%}"
        ]


def fourier_sensitivity(
    model: nn.Module,
    batches: Iterable[Batch],
    *,
    mean: Sequence[float],
    std: Sequence[float],
    rms: float = 0.1,
    reach: int = 8,
    step: int = 1,
    seed: int = 0,
    compute: Compute = CPU,
    progress: Progress | None = None,
    provenance: Provenance | None = None,
) -> FourierSensitivity:
    """The error rate under noise that is one direction of the Fourier basis, for each.

    x' = x + r v U, with U the real image of norm 1 that has nothing but the frequency (i, j)
    and its opposite, v = rms sqrt(h w) in each channel, and r = 1 or -1, drawn for each image
    and channel. Pixels are not clipped.

    (i, j) and (-i, -j) are one direction, so only a half of the plane is run: a pass for each
    of about (2 reach / step + 1)^2 / 2 directions.

    Args:
        model: in evaluation mode.
        batches: each is (images, targets), all of one size but the last.
        mean: by which the images were standardised, of each channel.
        std: the same.
        rms: of the noise in each channel, in pixels of 0 ... 1. Yin et al. have a norm of 4 for
            CIFAR-10, which is 0.125, and of 15.7 for ImageNet, which is 0.07.
        reach: the highest frequency, in cycles over a side of the image; h / 2 is the last.
        step: between frequencies; above 1 not every direction is looked at.
        seed: of the signs.
        compute: device and precision.
        progress: wraps the batches to show how far it is.
        provenance: what is known of the model and the data; the rest is filled in here.

    Raises:
        InputError: if there are no such frequencies, or as `frequency_noise`.

    Source: Yin et al. (2019), eq. 1 and fig. 3.
    """
    if reach < 1:
        raise InputError(f"reach must be at least 1, got {reach}")
    if not 1 <= step <= reach:
        raise InputError(f"step must be between 1 and {reach} (the reach), got {step}")
    if not 0 < rms < inf:
        raise InputError(f"rms must be finite and greater than 0, got {rms}")
    half = half_plane(reach, step)

    def changed(which: int, pixels: Tensor, _targets: Tensor, numbers: range) -> Tensor:
        size = (pixels.shape[-2], pixels.shape[-1])
        if 2 * reach > min(size):
            raise InputError(
                f"images of {size[0]}x{size[1]} have frequencies up to {min(size) // 2}, "
                f"not to {reach}; ask for a lower reach"
            )
        wave = direction(size, half[which]).to(pixels) * (rms * (size[0] * size[1]) ** 0.5)
        return pixels + _signs(pixels, (seed, which), numbers) * wave

    sums, facts = evaluate_perturbed(
        model,
        batches,
        PixelSpace(mean, std),
        len(half),
        changed,
        compute=compute,
        progress=progress,
        provenance=provenance,
    )
    columns = sums.columns()
    # Both ends of each direction; of frequency 0 there is one.
    ends = [(w, sign) for w, k in enumerate(half) for sign in ((1, -1) if any(k) else (1,))]
    row = np.array([w for w, _ in ends])
    place = np.array([[sign * half[w][0], sign * half[w][1]] for w, sign in ends])
    return FourierSensitivity(
        vertical=place[:, 0],
        horizontal=place[:, 1],
        error=1 - columns["accuracy"][row],
        error_rise=columns["drop"][row],
        error_rise_error=columns["drop_error"][row],
        clean_error=1 - sums.accuracy,
        rms=rms,
        nyquist=min(facts.image_shape[1:]) / 2,
        provenance=replace(facts, seed=seed),
    )


def half_plane(reach: int, step: int) -> list[tuple[int, int]]:
    """One of each two opposite frequencies up to `reach`, by rows."""
    some = [k for k in range(-reach, reach + 1) if k % step == 0]
    return [(i, j) for i in some for j in some if i > 0 or (i == 0 and j >= 0)]


def direction(size: tuple[int, int], frequency: tuple[int, int]) -> Float[Tensor, "h w"]:
    """The real image of norm 1 that has nothing but a frequency and its opposite."""
    spectrum = torch.zeros(size, dtype=torch.complex128)
    (height, width), (i, j) = size, frequency
    # Any phase is as good; that of Nyquist's frequency must be real.
    spectrum[i % height, j % width] = 1
    spectrum[-i % height, -j % width] = 1
    image = fft.ifft2(spectrum).real
    return (image / image.norm()).float()


def _signs(like: Tensor, use: tuple[int, int], numbers: range) -> Float[Tensor, "b c 1 1"]:
    seed, which = use
    drawn = [
        torch.randint(2, (like.shape[1], 1, 1), generator=stream(seed, "signs", which, n))
        for n in numbers
    ]
    return (2 * torch.stack(drawn) - 1).to(like)
