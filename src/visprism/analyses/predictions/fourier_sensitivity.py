"""Sensitivity to noise of single frequencies."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from visprism.analyses.base import ANALYSES, Analysis, Cost, Needs, Section
from visprism.analyses.subject import Subject
from visprism.core.options import option
from visprism.core.run import Run
from visprism.measure.outputs import fourier_sensitivity
from visprism.measure.outputs.fourier_sensitivity import half_plane
from visprism.results.perturbations import FourierSensitivity as Sensitivity
from visprism.table.result import Result


@ANALYSES.register
@dataclass(frozen=True)
class FourierSensitivity(Analysis):
    """Error rate under noise of each single frequency."""

    name = "fourier-sensitivity"
    group = "robustness"
    min_images = 16
    max_images = 512
    needs = Needs.TARGETS | Needs.PIXELS | Needs.OUTPUTS
    source = "Yin et al. (2019), fig. 3"
    default = False
    sections = (
        Section(
            Sensitivity,
            "Fourier sensitivity",
            "Error rate under noise of a single frequency, by its vertical and horizontal "
            "component. The center is frequency 0; opposite frequencies have the same value.",
        ),
    )

    rms: float = option(
        0.1, "root mean square of the noise, for pixel values in [0, 1]", above=0
    )
    max_frequency: int = option(8, "highest frequency in cycles per image side", minimum=1)
    frequency_step: int = option(2, "distance between frequencies in cycles", minimum=1)

    def measure(self, subject: Subject, run: Run) -> Sequence[Result]:
        """Measure the error rate under each frequency."""
        run = subject.for_outputs(run)
        return fourier_sensitivity(
            subject.model,
            subject.output_batches(run),
            mean=subject.known_preprocessing.mean,
            std=subject.known_preprocessing.std,
            rms=self.rms,
            max_frequency=self.max_frequency,
            frequency_step=self.frequency_step,
            clean=subject.predictions(run),
            run=run,
        )

    def cost(self, subject: Subject) -> Cost:
        """One forward pass for each of half of the frequencies, and one without noise."""
        return Cost(
            per_image=1 + 1.2 * len(half_plane(self.max_frequency, self.frequency_step))
        )

    def coarser(self) -> "FourierSensitivity | None":
        """Twice the distance between frequencies."""
        if 2 * self.frequency_step > self.max_frequency:
            return None
        return replace(self, frequency_step=2 * self.frequency_step)
