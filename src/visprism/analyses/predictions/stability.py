"""Stability of predictions along perturbation sequences."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from visprism.analyses.base import ANALYSES, Analysis, Cost, Needs, Section, Sizes
from visprism.analyses.predictions.stability import RelativeFlipRates, relative_flip_rates
from visprism.analyses.predictions.stability import Stability as StabilityResult
from visprism.analyses.subject import Measured, Subject
from visprism.core.options import option
from visprism.core.run import Run
from visprism.images.corruptions import PERTURBATIONS, SequenceBatches
from visprism.measure.outputs import stability
from visprism.table.result import Result

Perturbation = Literal[
    "gaussian_noise", "shot_noise", "motion_blur", "zoom_blur", "snow", "brightness",
    "translate", "rotate", "tilt", "scale",
]  # fmt: skip
_FRAMES = 31  # of nearly all sequences
_SECONDS_PER_PIXEL = 4e-7  # of a frame, on two CPU cores


@ANALYSES.register
@dataclass(frozen=True)
class Stability(Analysis):
    """Flip rate of predictions along sequences of slightly changed images."""

    name = "stability"
    group = "robustness"
    images = Sizes(fewest=16, quick=64, standard=512)
    needs = Needs.TARGETS | Needs.PIXELS | Needs.OUTPUTS
    source = "Hendrycks & Dietterich (2019), sec. 3.2 and 4.2"
    default = False
    sections = (
        Section(
            StabilityResult,
            "Flip rate along perturbation sequences",
            "Each bar is a perturbation: the fraction of frames whose predicted class differs "
            "from that of the frame before, or of the first frame for noise.",
        ),
        Section(
            RelativeFlipRates,
            "Flip rate relative to the first model",
            "Flip rate of the second model over that of the first, by perturbation, and its "
            "mean. With AlexNet as the first model the mean is the mFR of ImageNet-P.",
            figures={},
        ),
    )

    perturbations: tuple[Perturbation, ...] = option(
        PERTURBATIONS, "names of the perturbations", quick=PERTURBATIONS[::2]
    )

    def measure(self, subject: Subject, run: Run) -> Sequence[Result]:
        """Predict every frame of the sequences."""
        way = subject.known_preprocessing
        sequences: dict[str, SequenceBatches] = {
            name: SequenceBatches(
                lambda: subject.pixel_batches(1), name, way.mean, way.std, run.seed
            )
            for name in self.perturbations
        }
        return stability(subject.model, sequences, run=run)

    def compare(self, first: Measured, second: Measured, run: Run) -> Sequence[Result]:
        """Flip rates of the second model over those of the first."""
        reference, result = (_flip_rates(measured) for measured in (first, second))
        names = {"model": second.subject.name, "reference_model": first.subject.name}
        return (relative_flip_rates(result, reference, **names),)

    def cost(self, subject: Subject) -> Cost:
        """One pass per frame, and the time to make the frames."""
        frames = _FRAMES * len(self.perturbations)
        size = (32, 32) if subject.preprocessing is None else subject.preprocessing.size
        seconds = frames * size[0] * size[1] * _SECONDS_PER_PIXEL
        return Cost(per_image=float(frames), seconds_per_image=seconds)


def _flip_rates(measured: Measured) -> StabilityResult:
    return next(result for result in measured.results if isinstance(result, StabilityResult))
