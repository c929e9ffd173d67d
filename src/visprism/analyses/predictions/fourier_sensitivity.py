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

from visprism import kit
from visprism.analyses.predictions.bands import Frequency, basis_image, half_plane, with_rms
from visprism.analyses.predictions.perturbed import PerturbedAccuracy
from visprism.estimates import estimated
from visprism.estimates.findings import chance_findings
from visprism.passes.perturbed import Paired, Pixels, PixelSpace, random_numbers


@kit.result("fourier-sensitivity", "Fourier sensitivity")
class FrequencyErrors(kit.Surface):
    """Error rate under noise of a single frequency; one row for each, opposite ones alike.

    Error rate under noise of a single frequency, by its vertical and horizontal component.
    The center is frequency 0; opposite frequencies have the same value.
    """

    value_name, x_name, y_name = "error", "horizontal", "vertical"

    vertical: np.ndarray = kit.column("Vertical frequency", "cycles", "cycles over the height")
    horizontal: np.ndarray = kit.column(
        "Horizontal frequency", "cycles", "cycles over the width"
    )
    error: kit.Estimated = kit.estimate("Error rate", "%", "misclassified images with noise")
    error_rise: kit.Estimated = kit.estimate(
        "Rise of the error rate", kit.POINTS, "with minus without noise"
    )
    mean_rise: kit.Number = kit.estimate(
        "Rise of the error rate, mean over frequencies",
        kit.POINTS,
        asks="How sensitive is the model to noise of single frequencies?",
        in_pixels=True,
    )
    clean_error: float = kit.scalar("Clean error rate", "", "error rate without noise")
    rms: float = kit.scalar("RMS of the noise", "", "in pixels of 0 ... 1")
    classes: int = kit.scalar("Classes", "", "number of classes of the model", default=0)

    def sentences(self) -> Iterator[str | kit.Finding]:
        """Mean over frequencies, and the smallest and the largest error rate."""
        yield from kit.Result.sentences(self)
        yield from super().sentences()
        yield from chance_findings(1 - self.clean_error, self.provenance, self.classes)


@kit.analysis
class FourierSensitivity(PerturbedAccuracy):
    """Error rate under noise of each single frequency."""

    name = "fourier-sensitivity"
    group = "robustness"
    source = "Yin et al. (2019), A Fourier perspective on model robustness, eq. 1 and fig. 3"
    default = False
    gives = FrequencyErrors

    rms: float = kit.option(
        0.1, "root mean square of the noise, for pixel values in [0, 1]", above=0
    )
    max_frequency: int | None = kit.option(
        None,
        "highest frequency in cycles per image side (default: 8, or the highest below Nyquist)",
        minimum=1,
    )
    frequency_step: int = kit.option(
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
        self, outcomes: Paired, conditions: Sequence[Frequency], subject: kit.Subject
    ) -> Sequence[kit.Result]:
        """One row per frequency: both ends of each basis image; frequency 0 has one."""
        ends = [(1, -1) if any(k) else (1,) for k in conditions]
        row = np.repeat(np.arange(len(conditions)), list(map(len, ends)))
        place = np.concatenate(list(map(np.outer, ends, conditions)))
        rises = outcomes.drops[:, row]
        errors = FrequencyErrors(
            vertical=place[:, 0],
            horizontal=place[:, 1],
            error=kit.mean(1 - outcomes.correct[:, 1:][:, row], estimated.proportion),
            error_rise=kit.mean(rises, estimated.paired_proportion),
            mean_rise=kit.mean(rises.mean(1), estimated.skewed),
            clean_error=1 - outcomes.accuracy,
            rms=self.rms,
            classes=outcomes.classes,
        )
        return (errors,)
