"""Fourier sensitivity: error rate under noise of a single frequency, for each frequency.

x' = x + r v U, with U the real image of norm 1 that contains only the frequency (i, j) and its
opposite, v = rms sqrt(h w) in each channel, and r = 1 or -1 at random for each image and
channel. Pixels are not clipped. (i, j) and (-i, -j) are one basis image, so half of the plane
is measured.
"""

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import torch

from visprism.analyses.predictions.bands import Frequency, basis_image, half_plane, with_rms
from visprism.analyses.predictions.perturbed import PerturbedAccuracy
from visprism.core.options import option
from visprism.estimates import estimated, questions
from visprism.estimates.answers import POINTS
from visprism.estimates.estimated import Estimated, Number, mean
from visprism.estimates.findings import Finding, chance_findings
from visprism.kit.analysis import ANALYSES, Section, function_of
from visprism.kit.model_on_images import Subject
from visprism.passes.perturbed import Paired, Pixels, PixelSpace, random_numbers
from visprism.table.result import Result, column, estimate, result_type, scalar
from visprism.table.shapes import Surface


@result_type("fourier-sensitivity")
class FrequencyErrors(Surface):
    """Error rate under noise of a single frequency; one row for each, opposite ones alike."""

    value_name, x_name, y_name = "error", "horizontal", "vertical"

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
        """Mean over frequencies, and the smallest and the largest error rate."""
        yield from Result.sentences(self)
        yield from super().sentences()
        yield from chance_findings(1 - self.clean_error, self.provenance, self.classes)


@ANALYSES.register
class FourierSensitivity(PerturbedAccuracy):
    """Error rate under noise of each single frequency."""

    name = "fourier-sensitivity"
    group = "robustness"
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
        return half_plane(size, self.max_frequency, self.frequency_step)

    def change(
        self, pixels: Pixels, condition: Frequency, indices: range, seed: int, space: PixelSpace
    ) -> Pixels:
        """The pixels with noise of one frequency."""
        size = pixels.shape[-2], pixels.shape[-1]
        use, channels = (seed, "signs", self.conditions(size).index(condition)), pixels.shape[1]
        signs = random_numbers(partial(torch.randint, 2), (channels, 1, 1), indices, *use)
        wave = (2 * signs - 1) * basis_image(size, condition)
        return pixels + with_rms(wave.to(pixels), self.rms)

    def results(
        self, outcomes: Paired, conditions: Sequence[Frequency], subject: Subject
    ) -> Sequence[Result]:
        """One row per frequency: both ends of each basis image; frequency 0 has one."""
        ends = [(1, -1) if any(k) else (1,) for k in conditions]
        row = np.repeat(np.arange(len(conditions)), list(map(len, ends)))
        place = np.concatenate(list(map(np.outer, ends, conditions)))
        rises = outcomes.drops[:, row]
        errors = FrequencyErrors(
            vertical=place[:, 0],
            horizontal=place[:, 1],
            error=mean(1 - outcomes.correct[:, 1:][:, row], estimated.proportion),
            error_rise=mean(rises, estimated.paired_proportion),
            mean_rise=mean(rises.mean(1), estimated.skewed),
            clean_error=1 - outcomes.accuracy,
            rms=self.rms,
            classes=outcomes.classes,
        )
        return (errors,)


fourier_sensitivity = function_of(FourierSensitivity)
