"""Accuracy on stored sets of shifted images."""

from collections.abc import Sequence
from dataclasses import dataclass

from visprism.analyses.base import ANALYSES, Analysis, Cost, Needs, Section
from visprism.analyses.predictions.shifted_sets import read_shifted
from visprism.analyses.subject import Subject
from visprism.core.options import option
from visprism.core.run import Run
from visprism.measure.outputs.distribution_shift import distribution_shift
from visprism.results.distribution_shift import DistributionShift as DistributionShiftResult
from visprism.table.result import Result


@ANALYSES.register
@dataclass(frozen=True)
class DistributionShift(Analysis):
    """Accuracy on stored sets of shifted images, such as ImageNet-C, -R, -A and -Sketch."""

    name = "distribution-shift"
    group = "robustness"
    needs = Needs.TARGETS | Needs.PIXELS | Needs.OUTPUTS
    min_images = 16
    share = 0.5
    default = False  # which sets are stored, only the user can say
    source = "Hendrycks & Dietterich (2019); Hendrycks et al. (2021); Wang et al. (2019)"
    sections = (
        Section(
            DistributionShiftResult,
            "Accuracy on shifted images",
            "Each bar is a stored set: the accuracy on its images, with its 95% interval. The "
            "mark is the accuracy on images of the data of the same classes. Predictions are "
            "restricted to the classes of a set.",
        ),
    )

    sets: tuple[str, ...] = option(
        (),
        "stored sets in the form of DATA, such as imagenet_r:DIR; imagenet_c:DIR stands for "
        "each of its corruptions and severities",
    )

    def measure(self, subject: Subject, run: Run) -> Sequence[Result]:
        """Predict each set, and restrict the logits to its classes."""
        run = subject.for_outputs(run)
        sets = read_shifted(self.sets, subject, seed=run.seed)
        return (distribution_shift(subject.model, sets, subject.predictions(run), run=run),)

    def cost(self, subject: Subject) -> Cost:
        """One pass over each set, with as many images as the data."""
        return Cost(per_image=1.0 + len(self.sets))

    def inapplicable(self, subject: Subject) -> str | None:
        """Without stored sets."""
        if not self.sets:
            return "no stored sets of shifted images are named; set the option sets"
        return super().inapplicable(subject)
