"""Accuracy and calibration of predictions."""

from collections.abc import Sequence
from dataclasses import dataclass

from visprism.analyses.base import ANALYSES, Analysis, Cost, Needs, Section
from visprism.analyses.subject import Measured, Subject
from visprism.core.options import option
from visprism.core.run import Run
from visprism.measure.outputs.calibration import calibration
from visprism.measure.outputs.differing_pictures import differing_pictures
from visprism.measure.outputs.reliability import reliability, risk_coverage
from visprism.measure.outputs.temperature import temperature_if_finite
from visprism.passes.outcomes import outcomes
from visprism.passes.predict import predict
from visprism.passes.predictions import Predictions
from visprism.results.calibration import Calibration as CalibrationResult
from visprism.results.calibration import Reliability, RiskCoverage, Temperature
from visprism.results.differing_pictures import DifferingPictures
from visprism.results.predictions import (
    ErrorConsistency,
    Outcomes,
    calibration_differences,
    error_consistency,
)
from visprism.table.result import Result


@ANALYSES.register
@dataclass(frozen=True)
class Calibration(Analysis):
    """Accuracy, NLL, calibration errors and reliability diagram of predictions."""

    name = "calibration"
    group = "predictions"
    needs = Needs.TARGETS | Needs.OUTPUTS
    share = 0.0
    claims = ("C12",)
    source = "Guo et al. (2017); Park & Kim (2022), app. C"
    sections = (
        Section(
            CalibrationResult,
            "Accuracy and calibration",
            "Accuracy, losses and calibration errors with 95% intervals over images. The ECE "
            "of few images is too large; the debiased ECE corrects for their number.",
            figures={},
        ),
        Section(
            Reliability,
            "Reliability diagram",
            "Each bar is a bin of the confidence: its height is the accuracy. The hatched part "
            "reaches to the mean confidence of the bin, a line. Bars below the diagonal are "
            "overconfident, bars above it underconfident.",
            figures={"": {}, "histogram": {"quantity": "frequency"}},
        ),
        Section(
            RiskCoverage,
            "Error rate by coverage",
            "The error rate of the most confident images. Where the curve starts near 0, the "
            "confidence separates correct from incorrect predictions.",
            table=False,
        ),
        Section(
            Temperature,
            "Temperature scaling",
            "The temperature by which the logits must be divided for the highest likelihood. "
            "Its effect is measured on images that it is not fitted on. The calibration error "
            "that remains is not one of the scale of the logits.",
            figures={},
        ),
        Section(
            DifferingPictures,
            "Images that only one model classifies correctly",
            "The first of these images, at most 24, with their class and the predictions of "
            "the first (1) and the second (2) model of the title. The next table lists all.",
            table=False,
        ),
        Section(
            ErrorConsistency,
            "Error consistency of two models",
            "Whether two models err on the same images: Cohen's kappa is 0 for independent "
            "errors of models with these accuracies and 1 for the same errors.",
            figures={},
        ),
    )

    bins: int = option(10, "number of bins of the confidence", minimum=1)
    cutoff: tuple[float, ...] = option(
        (0.9,), "confidences above which predictions count as certain", minimum=0, below=1
    )
    samples: int = option(1, "number of passes with dropout, averaged", minimum=1)

    def measure(self, subject: Subject, run: Run) -> Sequence[Result]:
        """Predict the evaluation images once, and measure everything on the predictions."""
        predictions = self._predictions(subject, run)
        result = outcomes(predictions)
        metrics = calibration(result, cutoff=self.cutoff, bins=self.bins)
        diagram = reliability(result, bins=self.bins)
        scaling = temperature_if_finite(predictions, seed=run.seed)
        curve = risk_coverage(result)
        return metrics, diagram, curve, scaling, result, result.per_image()

    def _predictions(self, subject: Subject, run: Run) -> Predictions:
        if self.samples == 1:
            return subject.predictions(run)
        return predict(subject.model, subject.batches(), samples=self.samples, run=run)

    def compare(self, first: Measured, second: Measured, run: Run) -> Sequence[Result]:
        """Error consistency, the images that differ, and the difference of the debiased ECE."""
        a, b = _outcomes(first), _outcomes(second)
        difference = calibration_differences(a, b, bins=self.bins)
        subject = first.subject
        consistency = error_consistency(
            a,
            b,
            names=(subject.name, second.subject.name),
            class_names=subject.images.class_names,
            positions=subject.images.positions,
        )
        if subject.preprocessing is None or not len(consistency):
            return consistency, difference  # pixels are not known
        return consistency, differing_pictures(consistency, subject.pixels_of), difference

    def cost(self, subject: Subject) -> Cost:
        """One pass per sample."""
        return Cost(per_image=float(self.samples))


def _outcomes(measured: Measured) -> Outcomes:
    return next(result for result in measured.results if isinstance(result, Outcomes))
