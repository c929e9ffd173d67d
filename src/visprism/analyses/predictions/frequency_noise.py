"""Robustness to noise of frequency bands."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from visprism.analyses.base import ANALYSES, Analysis, Cost, Needs, Section, Sizes
from visprism.analyses.predictions.frequency_noise import (
    PAPER_AMPLITUDE,
    RMS,
    FrequencyContrasts,
    noise_contrasts,
)
from visprism.analyses.subject import Subject
from visprism.core.options import option
from visprism.core.run import Run
from visprism.measure.outputs.bands import BAND_CENTERS
from visprism.results.perturbations import FrequencyRobustness
from visprism.table.result import Result


@ANALYSES.register
@dataclass(frozen=True)
class FrequencyNoise(Analysis):
    """Accuracy drop under noise of each frequency band."""

    name = "frequency-noise"
    group = "robustness"
    images = Sizes(fewest=16, quick=128, standard=512)
    needs = Needs.TARGETS | Needs.PIXELS | Needs.OUTPUTS
    source = "Park & Kim (2022), fig. 2b"
    claims = ("C7",)
    sections = (
        Section(
            FrequencyRobustness,
            "Robustness to noise of frequency bands",
            "Accuracy drop under noise of equal energy in each frequency band, with its 95% "
            "interval over images. High frequencies are to the right.",
        ),
        Section(
            FrequencyContrasts,
            "High against low frequencies",
            "The mean accuracy drop of high minus that of low frequencies. The paper claims "
            "that attention models are robust to high frequencies and convolutional models to "
            "low ones. Its noise is stronger at high frequencies.",
            figures={},
        ),
    )

    frequencies: tuple[float, ...] = option(
        BAND_CENTERS,
        "centers of the bands in π rad/pixel",
        minimum=0,
        maximum=1.41,
        quick=BAND_CENTERS[::2],
    )
    rms: float = option(
        RMS, "root mean square of the noise, for pixel values in [0, 1]", above=0
    )
    band_shape: Literal["square", "round"] = option(
        "square", "shape of the bands in the frequency plane"
    )
    protocol: Literal["default", "paper", "both"] = option(
        "default",
        "noise with equal energy in each band (default), noise as in the code of Park & Kim "
        "(2022) (paper), or both",
    )
    paper_amplitude: float = option(
        PAPER_AMPLITUDE,
        "amplitude of the paper protocol, in units of normalized pixel values; used only with "
        "paper or both",
        above=0,
    )

    def measure(self, subject: Subject, run: Run) -> Sequence[Result]:
        """Measure accuracy under noise of each band."""
        return noise_contrasts(
            subject.anatomy,
            subject.output_batches(run),
            mean=subject.known_preprocessing.mean,
            std=subject.known_preprocessing.std,
            frequencies=self.frequencies,
            rms=self.rms,
            band_shape=self.band_shape,
            protocol=self.protocol,
            paper_amplitude=self.paper_amplitude,
            clean=subject.predictions(run),
            run=run,
        )

    def cost(self, subject: Subject) -> Cost:
        """One forward pass per band with its noise, and one without, for each protocol."""
        passes = 1 + 1.5 * len(self.frequencies)
        return Cost(per_image=2 * passes if self.protocol == "both" else passes)
