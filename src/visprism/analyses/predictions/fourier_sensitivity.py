"""Fourier sensitivity: error rate under noise of a single frequency, for each frequency.

x' = x + r v U, with U the real image of norm 1 that contains only the frequency (i, j) and its
opposite, v = rms sqrt(h w) in each channel, and r = 1 or -1 at random for each image and
channel. Pixels are not clipped. (i, j) and (-i, -j) are one basis image, so half of the plane
is measured.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from torch import Tensor, fft

from visprism.analyses.base import ANALYSES, Section, Sizes, function_of
from visprism.analyses.predictions.perturbed import PerturbedAccuracy
from visprism.analyses.subject import Subject
from visprism.core.errors import InputError
from visprism.core.options import option
from visprism.drawing.color_bars import cells, error_rate_bar
from visprism.drawing.registry import figure
from visprism.estimates import questions
from visprism.estimates.answers import POINTS
from visprism.estimates.estimated import (
    Estimated,
    Number,
    mean,
    paired_proportion,
    proportion,
    skewed,
)
from visprism.estimates.findings import Finding, chance_findings
from visprism.estimates.text import images_text, points_text, text_of
from visprism.passes.perturbed import Paired, Pixels, random_numbers
from visprism.table.result import Result, column, estimate, result_type, scalar

Frequency = tuple[int, int]  # cycles over the height and over the width
_HIGHEST = 8  # cycles per image side, unless an option says otherwise


@result_type("fourier-sensitivity")
class FrequencyErrors(Result):
    """Error rate under noise of a single frequency; one row for each, opposite ones alike."""

    vertical: np.ndarray = column("Vertical frequency", "cycles", "cycles over the height")
    horizontal: np.ndarray = column("Horizontal frequency", "cycles", "cycles over the width")
    error: Estimated = estimate("Error rate", "%", "misclassified images with noise")
    error_rise: Estimated = estimate(
        "Rise of the error rate", POINTS, "with minus without noise"
    )
    mean_rise: Number = estimate(
        "Rise of the error rate, mean over frequencies",
        POINTS,
        question=questions.FREQUENCY_SENSITIVITY,
        in_pixels=True,
    )
    clean_error: float = scalar("Clean error rate", "", "error rate without noise")
    rms: float = scalar("RMS of the noise", "", "in pixels of 0 ... 1")
    classes: int = scalar("Classes", "", "number of classes of the model", default=0)

    def sentences(self) -> Iterator[str | Finding]:
        """Mean over frequencies, and the largest, named as a maximum."""
        origin, rise = self.provenance, self.mean_rise
        images = images_text(origin.images, origin.split)
        yield (
            f"noise of RMS {self.rms:.3g} at a single frequency: error rate rises from "
            f"{self.clean_error:.1%} by {points_text(rise, rise.low, rise.high)}, mean "
            f"over {len(self)} frequencies ({images})"
        )
        if np.ptp(self.error):
            worst = int(self.error.argmax())
            rate = self.error[worst]
            yield (
                f"largest error rate of {len(self)} frequencies: "
                f"{text_of(rate, '.1%')} at ({self.vertical[worst]}, "
                f"{self.horizontal[worst]}) cycles, over {images}"
            )
        yield from chance_findings(
            1 - self.clean_error, origin.images, self.classes, origin.split
        )


@ANALYSES.register
@dataclass(frozen=True)
class FourierSensitivity(PerturbedAccuracy):
    """Error rate under noise of each single frequency."""

    name = "fourier-sensitivity"
    group = "robustness"
    images = Sizes(fewest=16, quick=64, standard=512)
    source = "Yin et al. (2019), A Fourier perspective on model robustness, eq. 1 and fig. 3"
    default = False
    sections = (
        Section(
            FrequencyErrors,
            "Fourier sensitivity",
            "Error rate under noise of a single frequency, by its vertical and horizontal "
            "component. The center is frequency 0; opposite frequencies have the same value.",
        ),
    )

    rms: float = option(
        0.1, "root mean square of the noise, for pixel values in [0, 1]", above=0
    )
    max_frequency: int | None = option(
        None,
        "highest frequency in cycles per image side (default: 8, or the highest below Nyquist)",
        minimum=1,
    )
    frequency_step: int = option(
        2, "distance between frequencies in cycles", minimum=1, quick=4
    )

    def conditions(self, size: tuple[int, int]) -> Sequence[Frequency]:
        """One of each two opposite frequencies, by rows."""
        most = (min(size) - 1) // 2  # at Nyquist, a frequency is its own opposite
        highest = min(_HIGHEST, most) if self.max_frequency is None else self.max_frequency
        if highest > most:
            raise InputError(
                f"max_frequency must be at most {most}, below the Nyquist frequency of "
                f"{size[0]}x{size[1]} images, got {highest}"
            )
        steps = highest // self.frequency_step
        multiples = [self.frequency_step * k for k in range(-steps, steps + 1)]
        return [(i, j) for i in multiples for j in multiples if i > 0 or (i == 0 and j >= 0)]

    def change(
        self, pixels: Pixels, condition: Frequency, *, indices: range, seed: int, **_: Any
    ) -> Pixels:
        """The pixels with noise of one frequency."""
        height, width = pixels.shape[-2:]
        wave = basis_image((height, width), condition).to(pixels)
        number = self.conditions((height, width)).index(condition)
        size = pixels.shape[1], 1, 1
        signs = random_numbers(partial(torch.randint, 2), size, indices, seed, "signs", number)
        return pixels + (2 * signs - 1).to(pixels) * wave * self.rms * (height * width) ** 0.5

    def results(
        self, outcomes: Paired, conditions: Sequence[Frequency], subject: Subject
    ) -> Sequence[Result]:
        """One row per frequency: both ends of each basis image; frequency 0 has one."""
        ends = [(n, s) for n, k in enumerate(conditions) for s in ((1, -1) if any(k) else (1,))]
        row = np.array([number for number, _ in ends])
        place = np.array([[s * conditions[n][0], s * conditions[n][1]] for n, s in ends])
        rises = outcomes.drops[:, row]
        return (
            FrequencyErrors(
                vertical=place[:, 0],
                horizontal=place[:, 1],
                error=mean(1 - outcomes.correct[:, 1:][:, row], proportion),
                error_rise=mean(rises, paired_proportion),
                mean_rise=mean(rises.mean(1), skewed),
                clean_error=1 - outcomes.accuracy,
                rms=self.rms,
                classes=outcomes.classes,
            ),
        )


fourier_sensitivity = function_of(FourierSensitivity)


def basis_image(size: tuple[int, int], frequency: Frequency) -> Float[Tensor, "h w"]:
    """The real image of norm 1 that contains only a frequency and its opposite."""
    spectrum = torch.zeros(size, dtype=torch.complex128)
    (height, width), (i, j) = size, frequency
    spectrum[i % height, j % width] = 1
    spectrum[-i % height, -j % width] = 1
    image = fft.ifft2(spectrum).real
    return (image / image.norm()).float()


@figure(width=2.5, height=2.4, key=error_rate_bar, key_width=0.7)
def _(result: FrequencyErrors, ax: Axes) -> Axes:
    """Error rate under noise of each frequency; the cross marks frequency 0."""
    cells(ax, result.horizontal, result.vertical, result.error)
    ax.plot(0, 0, marker="+", markersize=5, markeredgewidth=0.7, color="white")
    ax.set(xlabel="Horizontal frequency (cycles)", ylabel="Vertical frequency (cycles)")
    return ax
