"""Accuracy and calibration: whether the confidence of a model is its accuracy.

Source: Guo et al. (2017), On calibration of modern neural networks.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import nan
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from visprism.analyses.base import ANALYSES, Analysis, Cost, Needs, Section, Sizes, function_of
from visprism.analyses.model_on_images import Measured, Subject
from visprism.analyses.predictions.confusions import (
    ClassAccuracy,
    Confusions,
    accuracy_by_class,
)
from visprism.analyses.predictions.error_consistency import (
    DifferingPictures,
    ErrorConsistency,
    differing_pictures,
    error_consistency,
)
from visprism.analyses.predictions.temperature import TemperatureScaling, temperature_if_finite
from visprism.core.errors import InputError
from visprism.core.options import option
from visprism.core.run import Run
from visprism.core.statistics import FEWEST_VALUES, mean_interval
from visprism.drawing.registry import figure
from visprism.drawing.style import FAINT, KIND_COLORS, tip
from visprism.estimates import questions
from visprism.estimates.answers import Answer, EstimateInfo, few_outcomes
from visprism.estimates.calibration_error import Bins, calibration_error
from visprism.estimates.estimated import Estimated, Number, mean, proportion, stacked
from visprism.estimates.findings import Finding, at_chance, chance_findings
from visprism.estimates.text import missing_text, text_of
from visprism.passes.averaged import MonteCarloDropout, dropout_modules
from visprism.passes.outcomes import Outcomes, outcomes, outcomes_of
from visprism.passes.predict import predict
from visprism.passes.predictions import Predictions
from visprism.table.result import Result, Texts, column, estimate, result_type, scalar
from visprism.table.shapes import Curve

ANSWERED = {
    "accuracy": EstimateInfo("accuracy", "%", question=questions.ACCURACY),
    "nll": EstimateInfo("NLL", "nats", question=questions.LIKELIHOOD),
    "debiased_ece": EstimateInfo(
        "debiased ECE", "%", question=questions.CALIBRATION, comparison="bounded"
    ),
    "signed_ece": EstimateInfo(
        "signed ECE (mean confidence - accuracy)",
        "%",
        question=questions.CONFIDENCE,
    ),
}
_BIAS = 0.01  # ECE of a calibrated model from which on the number of images is too small
_BAR, _GAP = KIND_COLORS["conv"], KIND_COLORS["attention"]
_COVERAGES = 200  # of the curve of risk and coverage, at most


@result_type("calibration")
class CalibrationMetrics(Result):
    """Every metric of predictions with its interval; one row per metric."""

    drawn_in = "reliability"

    metric: Texts = column("Metric", "", "name of the metric")
    value: Estimated = estimate("Value", "", "value of the metric", keep=True)
    bins: int = scalar("Bins", "", "bins of the calibration errors", default=10)
    classes: int = scalar("Classes", "", "number of classes of the model", default=0)
    calibrated_ece: float = scalar(
        "ECE if calibrated",
        "",
        "expected ECE of a calibrated model in as many images",
        default=nan,
    )

    def of(self, metric: str) -> Number:
        """A metric with its interval: ``result.of("ece")``, ``result.of("nll").high``."""
        (rows,) = np.nonzero(self.metric == metric)
        if len(rows) != 1:
            names = ", ".join(self.metric.tolist())
            raise InputError(f"metric must be one of {names}, got {metric!r}")
        return self.value[int(rows[0])]

    def sentences(self) -> Iterator[str | Finding]:
        """Accuracy, NLL, ECE, and the direction of the calibration error if significant."""
        images = self.images_text
        accuracy, nll, ece = (self.of(name) for name in ("accuracy", "nll", "ece"))
        debiased = text_of(self.of("debiased_ece"), ".1%")
        yield (
            f"accuracy {text_of(accuracy, '.1%')}, NLL {text_of(nll)} over {images}"
            f"{missing_text(nll, ' of the NLL')}"
        )
        yield from chance_findings(accuracy, self.provenance, self.classes)
        signed = self.of("signed_ece")
        yield (
            f"ECE {ece:.1%} over {images}, debiased {debiased}, {self._confidence()}: "
            f"confidence - accuracy {text_of(signed, '.1%')}{missing_text(signed)}"
        )
        if self._too_few:
            yield Finding(
                f"too few images for the ECE: a calibrated model has an expected ECE of "
                f"{self.calibrated_ece:.1%} in {images}, the model {ece:.1%}",
                "VP102",
            )

    def answers(self) -> tuple[Answer, ...]:
        """Accuracy, NLL, debiased ECE and signed ECE."""
        word = self._confidence()
        few = f"{word}{' (few images, VP102)' * self._too_few}"
        readings = {"debiased_ece": few, "signed_ece": word}
        return tuple(
            info.answer(f"{self.identifier}.{n}", self.of(n), reading=readings.get(n, ""))
            for n, info in ANSWERED.items()
        )

    @property
    def _too_few(self) -> bool:
        """Whether a calibrated model would have much of this ECE in as many images."""
        return self.calibrated_ece > max(_BIAS, self.of("ece") / 2)

    def _confidence(self) -> str:
        """Whether the model is over- or underconfident, by the sign of the signed ECE."""
        if self.of("accuracy") == 1:
            return "underconfident (all predictions are correct)"
        signed = self.of("signed_ece")
        if np.isnan(signed.low):
            return "undecided"
        if at_chance(self.of("accuracy"), self.provenance.images, self.classes):
            return "accuracy at chance level"  # the confidence is off by what the labels are
        if signed.low <= 0 <= signed.high:
            return "over- or underconfidence not significant"
        return "overconfident" if signed > 0 else "underconfident"


@result_type("reliability")
class Reliability(Result):
    """Reliability diagram and confidence histogram; one row per bin, empty bins too."""

    lower: np.ndarray = column("Above", "", "lower edge of the bin, exclusive")
    upper: np.ndarray = column("Up to", "", "upper edge of the bin, inclusive")
    count: np.ndarray = column("Images", "", "number of images in the bin")
    frequency: np.ndarray = column("Fraction of images", "", "of all images")
    confidence: np.ndarray = column("Confidence", "", "mean in the bin; NaN in an empty bin")
    accuracy: np.ndarray = column("Accuracy", "", "of the bin; NaN in an empty bin")
    ece: float = scalar(
        "ECE", "", "sum of |accuracy - confidence|, weighted by images", default=0.0
    )


@result_type("risk-coverage")
class RiskCoverage(Curve):
    """Error rate of the most confident images; one row per coverage."""

    value_name: ClassVar[str] = "risk"
    x_name: ClassVar[str] = "coverage"
    scale: ClassVar[str] = "zero"

    coverage: np.ndarray = column(
        "Coverage", "", "fraction of images that are predicted, the most confident first"
    )
    risk: np.ndarray = column("Error rate", "", "of these images")
    confidence: np.ndarray = column("Lowest confidence", "", "of these images")
    aurc: Number = estimate(
        "AURC", "", "area under the curve: mean error rate over all coverages", default=0.0
    )

    def sentences(self) -> Iterator[str | Finding]:
        """The area under the curve, and the error rate of the more confident half."""
        half = int(np.abs(self.coverage - 0.5).argmin())
        images = self.images_text
        yield (
            f"AURC {text_of(self.aurc)} over {images}{missing_text(self.aurc)}: error rate "
            f"{self.risk[half]:.1%} at coverage {self.coverage[half]:.0%}, "
            f"{self.risk[-1]:.1%} at coverage 100%"
        )


@ANALYSES.register
class Calibration(Analysis):
    """Accuracy, NLL, calibration errors and reliability diagram of predictions."""

    name = "calibration"
    images = Sizes(quick=None, standard=None, work=0.5)
    rank = 0
    group = "predictions"
    needs = Needs.TARGETS | Needs.OUTPUTS
    claims = ("C12",)
    source = "Guo et al. (2017); Park & Kim (2022), app. C"
    sections = (
        Section(
            CalibrationMetrics,
            "Accuracy and calibration",
            "Accuracy, losses and calibration errors with 95% intervals over images. The ECE "
            "of few images is too large; the debiased ECE corrects for their number.",
            figures={},
        ),
        Section(
            ClassAccuracy,
            "Accuracy by class",
            "The accuracy of each class with its 95% interval over the images of the class, "
            "the lowest first, at most 20 in the figure. The lowest of many is selected, so it "
            "is likely to be higher on new images.",
        ),
        Section(
            Confusions,
            "Confusion matrix",
            "Rows are classes and columns predictions, in percent of the images of the class. "
            "With more than 20 classes, the figure shows the most frequent errors.",
        ),
        Section(
            Reliability,
            "Reliability diagram",
            "Each bar is a bin of the confidence: its height is the accuracy, the line its "
            "mean confidence, the hatched part the gap. Bars below the diagonal are "
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
            TemperatureScaling,
            "Temperature scaling",
            "Logits divided by the temperature have the highest likelihood. The effect is "
            "measured on images that the temperature is not fitted on. The remaining "
            "calibration error does not come from the scale of the logits.",
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
    samples: int = option(1, "number of passes with dropout, averaged", minimum=1)

    def measure(self, subject: Subject, run: Run) -> Sequence[Result]:
        """Predict the evaluation images once, and measure everything on the predictions."""
        if self.samples == 1:
            predictions = subject.predictions(run)
        else:
            model = MonteCarloDropout(subject.model, self.samples, seed=run.seed)
            predictions = predict(model, subject.batches(), run=run)
        result = outcomes(predictions)
        return (
            self.of(result),
            *accuracy_by_class(result, subject.images.class_names),
            reliability(result, bins=self.bins),
            risk_coverage(result),
            temperature_if_finite(predictions, seed=run.seed),
            result,
        )

    def compare(self, first: Measured, second: Measured, run: Run) -> Sequence[Result]:
        """Error consistency, and the images that differ."""
        a, b = (next(r for r in m.results if isinstance(r, Outcomes)) for m in (first, second))
        subject = first.subject
        consistency = error_consistency(
            a,
            b,
            names=(subject.name, second.subject.name),
            class_names=subject.images.class_names,
            positions=subject.images.positions,
        )
        if subject.preprocessing is None or not len(consistency):
            return (consistency,)  # pixels are not known
        return consistency, differing_pictures(consistency, subject.pixels_of)

    def inapplicable(self, subject: Subject) -> str | None:
        """Several samples of a model without dropout."""
        reason = super().inapplicable(subject)
        if reason is None and self.samples > 1 and not dropout_modules(subject.model):
            return "samples above 1 need a model with dropout"
        return reason

    def cost(self, subject: Subject) -> Cost:
        """One pass per sample."""
        return Cost(per_image=self.samples)

    def of(self, predictions: Predictions | Outcomes) -> CalibrationMetrics:
        """Accuracy, NLL, ECE and every other metric of predictions, with intervals over images.

        With p the probabilities of an image, t its target, f = max p its confidence:

        - accuracy; top5; nll, mean of -log p_t; brier, mean of the sum over classes of (p -
          1_t)^2.
        - ece, over bins (i/m, (i+1)/m] of f: the sum over bins of |correct images - sum of f|
          over all images; debiased_ece, see `visprism.estimates.calibration_error`; signed_ece,
          mean f minus accuracy, above 0 for an overconfident model; mce, the largest |accuracy
          - mean of f| of a bin with images; adaptive_ece, the ece of bins with equally many
          images, where an image on an edge counts in parts.
        - aurc: mean over i of the error rate of the i most confident images.

        Intervals: Wilson's for fractions of images; `visprism.core.statistics.mean_interval`,
        for skewed values, for nll, brier and signed_ece, and with at least 5 correct and 5
        wrong predictions for aurc, whose values by image are its linearization; inversion of a
        test for the debiased ECE; none for ece, mce and adaptive_ece, which are biased in few
        images.

        Costs one pass over the logits.

        Args:
            predictions: of a data set, or their outcomes.

        Source: Guo et al. (2017), eq. 3 and 5; Nguyen and O'Connor (2015), Posterior
        calibration and exploratory analysis, for equal counts; Geifman et al. (2019),
        Bias-reduced uncertainty estimation, for the aurc; Kumar et al. (2019), Verified
        uncertainty calibration, for the bias.
        """
        o, bins = outcomes_of(predictions), self.bins
        n, correct = len(o), o.correct.astype(np.float64)
        ranked, binned = _Ranked(o), Bins.of(o.confidence, o.correct.astype(bool), bins)
        gap = np.abs(binned.correct - binned.confidence)[0]
        even = np.linspace(
            0, n, bins + 1
        )  # bins of equally many images, the most confident first
        even_gap = np.diff(np.interp(even, np.arange(n + 1), ranked.sums_of(ranked.gap)))
        error = calibration_error(o.confidence, o.correct.astype(bool), bins=bins)

        def biased(value: float) -> Number:
            return Number(value, by_unit=np.full(n, nan))

        metrics = {
            "accuracy": mean(correct, proportion),
            "top5": mean(o.top5.astype(np.float64), proportion),
            "nll": _mean_loss(o, o.nll),
            "brier": _mean_loss(o, o.brier),
            "ece": biased(error.value),
            "signed_ece": _mean_loss(o, o.confidence - correct),
            "mce": biased((gap / binned.filled[0]).max()),
            "adaptive_ece": biased(np.abs(even_gap).sum() / n),
            "aurc": _mean_loss(o, ranked.aurc_by_image),
            "debiased_ece": error.debiased,
        }
        return CalibrationMetrics(
            metric=np.array(list(metrics)),
            value=stacked(list(metrics.values())),
            bins=bins,
            classes=o.classes,
            calibrated_ece=error.calibrated,
            provenance=replace(o.provenance, images=n),
        )


calibration = function_of(Calibration, Calibration.of, without=["samples"])


def _mean_loss(outcomes: Outcomes, losses: Float[np.ndarray, " n"]) -> Number:
    """A mean loss; no interval for fewer than 5 correct or 5 wrong predictions."""
    few = few_outcomes(outcomes.correct.astype(bool))
    ends = (nan, nan) if few else mean_interval(losses)
    if not few and np.isnan(ends[0]):
        few = f"fewer than {FEWEST_VALUES} images"
    return Number(losses.mean(dtype=np.float64), *ends, losses, few)


class _Ranked:
    """Images by descending confidence; images of equal confidence count with their mean."""

    def __init__(self, outcomes: Outcomes) -> None:
        levels, self._level, self._sizes = np.unique(
            -outcomes.confidence, return_inverse=True, return_counts=True
        )
        self.confidence = np.repeat(-levels.astype(np.float64), self._sizes)
        self._is_wrong = 1 - outcomes.correct.astype(np.float64)
        wrong = np.bincount(self._level, self._is_wrong) / self._sizes
        self.wrong = np.repeat(wrong, self._sizes)
        self.gap = 1 - self.wrong - self.confidence

    @staticmethod
    def sums_of(values: Float[np.ndarray, " n"]) -> Float[np.ndarray, " m"]:
        """Sums over the 0, 1, 2, ..., n most confident images."""
        return np.append(0.0, np.cumsum(values))

    @property
    def risk(self) -> Float[np.ndarray, " n"]:
        """Error rate of the 1, 2, ..., n most confident images."""
        return np.cumsum(self.wrong) / np.arange(1, len(self.wrong) + 1)

    @property
    def aurc_by_image(self) -> Float[np.ndarray, " n"]:
        """A value for each image whose mean is the AURC: the AURC plus the image's influence.

        The AURC is the mean over i of the error rate of the i most confident images, or of
        e_i w_i with e_i = 1 for a wrong prediction and w_i = 1 / i + ... + 1 / n. An image also
        raises the coverage of all images below it, so that the value of the i-th most confident
        one is

            e_i w_i - (e_i / i + ... + e_n / n) + mean of e.

        The spread of the values gives the standard error of the AURC. They are in the order of
        the data; images of equal confidence count with the mean over their orders.

        Source: Geifman et al. (2019), Bias-reduced uncertainty estimation, for the AURC;
        Jaeckel (1972), The infinitesimal jackknife, for the influence.
        """
        rank, starts = np.arange(1, len(self.wrong) + 1), np.cumsum(self._sizes) - self._sizes
        weight, below = (
            (np.add.reduceat(np.cumsum(v[::-1])[::-1], starts) / self._sizes)[self._level]
            for v in (1 / rank, self.wrong / rank)
        )
        return self._is_wrong * weight - below + self._is_wrong.mean()


def reliability(predictions: Predictions | Outcomes, *, bins: int = 10) -> Reliability:
    """Accuracy and mean confidence in bins (i/m, (i+1)/m] of the confidence.

    Args:
        predictions: of a data set, or their outcomes.
        bins: number of bins, m.

    Source: Niculescu-Mizil and Caruana (2005), Predicting good probabilities with supervised
    learning.
    """
    o = outcomes_of(predictions)
    binned = Bins.of(o.confidence, o.correct.astype(bool), bins)
    count, edges = binned.images[0], np.arange(bins + 1) / bins
    filled = np.where(count > 0, count, nan)
    return Reliability(
        lower=edges[:-1],
        upper=edges[1:],
        count=count.astype(int),
        frequency=count / len(o),
        confidence=binned.confidence[0] / filled,
        accuracy=binned.correct[0] / filled,
        ece=float(binned.ece[0]),
        provenance=o.provenance,
    )


def risk_coverage(predictions: Predictions | Outcomes) -> RiskCoverage:
    """The error rate of the most confident images against their fraction of all images.

    Images of equal confidence each count with their mean error, so that their order does not
    matter. Coverages are equally spaced: 200, or one per image.

    Source: Geifman and El-Yaniv (2017), Selective classification for deep neural networks.
    """
    o = outcomes_of(predictions)
    ranked, number, points = _Ranked(o), len(o), min(_COVERAGES, len(o))
    counts = np.linspace(number / points, number, points).round().astype(int)
    return RiskCoverage(
        coverage=counts / number,
        risk=ranked.risk[counts - 1],
        confidence=ranked.confidence[counts - 1],
        aurc=_mean_loss(o, ranked.aurc_by_image),
        provenance=replace(o.provenance, images=number),
    )


@figure(width=2.3, height=2.2)
def _(
    result: Reliability, ax: Axes, *, quantity: Literal["accuracy", "frequency"] = "accuracy"
) -> Axes:
    """Accuracy by confidence with the gap to the mean confidence, or a confidence histogram.

    A bin without images has no bar.
    """
    result, gap = result.select(result.count > 0), quantity == "accuracy"
    middle, width = (result.lower + result.upper) / 2, result.upper - result.lower
    heights = getattr(result, quantity)
    bars = ax.bar(middle, heights, width, color=_BAR, edgecolor="white", linewidth=0.5)
    for bar, count, height in zip(bars, result.count.tolist(), heights.tolist(), strict=True):
        bar.set_gid(tip(f"{count} images · {height:.1%}"))
    if gap:
        hatched = {"color": "none", "edgecolor": _GAP, "hatch": "//////", "linewidth": 0.5}
        rise = result.confidence - result.accuracy
        ax.bar(middle, rise, 0.76 * width, result.accuracy, label="_gap", **hatched)
        reach = 0.38 * width
        ax.hlines(result.confidence, middle - reach, middle + reach, color=_GAP, linewidth=1.2)
        ax.plot([0, 1], [0, 1], color=FAINT, linewidth=0.8, linestyle=(0, (3, 2)))
        ax.text(0.03, 1.03, f"ECE {result.ece:.1%}", va="bottom", fontsize="small")
    ax.set(xlim=(0, 1), xlabel="Confidence")
    ax.set(ylim=(0, 1.13 if gap else 1), ylabel="Accuracy" if gap else "Fraction of images")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(PercentFormatter(1, decimals=0))
    return ax
