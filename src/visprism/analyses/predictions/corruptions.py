"""Robustness to common corruptions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from visprism.analyses.base import ANALYSES, Analysis, Cost, Needs, Section, Sizes
from visprism.analyses.predictions.corruptions import CLEAN, CorruptionErrors, Robustness
from visprism.analyses.subject import Subject
from visprism.core.options import option
from visprism.core.run import Run
from visprism.images.corruptions import COMMON, change_of
from visprism.measure.outputs import robustness
from visprism.table.result import Result

Corruption = Literal[
    "gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "glass_blur",
    "motion_blur", "zoom_blur", "snow", "frost", "fog", "brightness", "contrast",
    "elastic_transform", "pixelate", "jpeg_compression", "speckle_noise", "gaussian_blur",
    "spatter", "saturate",
]  # fmt: skip
_SECONDS_PER_PIXEL = 4e-7  # of a corruption, mean over the fifteen, on two CPU cores


@ANALYSES.register
@dataclass(frozen=True)
class Corruptions(Analysis):
    """Accuracy and calibration on corrupted images, by corruption and severity."""

    name = "corruptions"
    group = "robustness"
    images = Sizes(fewest=16, quick=128, standard=512, work=1.4)
    min_side = 16  # see `corrupt`
    needs = Needs.TARGETS | Needs.PIXELS | Needs.OUTPUTS
    claims = ("C11",)
    source = "Hendrycks & Dietterich (2019)"
    sections = (
        Section(
            Robustness,
            "Error rate on corrupted images",
            "Each cell is a corruption at a severity: the percentage of images that are "
            "classified incorrectly. The same images are used everywhere.",
            table=False,
        ),
        Section(
            CorruptionErrors,
            "Error rate by corruption",
            "Each bar is the error rate of a corruption, mean over its severities. The dashed "
            "line is the error rate on clean images. At 224x224 pixels and 1000 classes, marks "
            "are the published error rates of AlexNet.",
        ),
    )

    corruptions: tuple[Corruption, ...] = option(COMMON, "names of the corruptions")
    severities: tuple[int, ...] = option(
        (1, 2, 3, 4, 5),
        "severities from 1 (mild) to 5 (severe)",
        minimum=1,
        maximum=5,
        quick=(3,),
    )
    bins: int = option(10, "number of bins of the confidence", minimum=1)

    def measure(self, subject: Subject, run: Run) -> Sequence[Result]:
        """Predict the evaluation images without and with each corruption."""
        batches = {CLEAN: subject.predictions(run)} | {
            (name, severity): subject.output_batches(run, change_of(name, severity, run.seed))
            for name in self.corruptions
            for severity in self.severities
        }
        result, per_image = robustness(subject.model, batches, bins=self.bins, run=run)
        return result, result.corruption_errors(), per_image

    def cost(self, subject: Subject) -> Cost:
        """One pass per condition, and the time to corrupt the images."""
        conditions = len(self.corruptions) * len(self.severities)
        size = (32, 32) if subject.preprocessing is None else subject.preprocessing.size
        pixels = size[0] * size[1]
        return Cost(
            per_image=1.0 + conditions,
            seconds_per_image=conditions * pixels * _SECONDS_PER_PIXEL,
        )
