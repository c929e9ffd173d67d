"""Accuracy and calibration: whether the confidence of a model is its accuracy.

Source: Guo et al. (2017), On calibration of modern neural networks; for the cut-offs Park and
Kim (2022), How do vision transformers work?, and its code.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import nan
from typing import Literal

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from visprism.analyses.base import ANALYSES, Analysis, Cost, Needs, Section, Sizes, function_of
from visprism.analyses.predictions.confidence_metrics import (
    CumulativeSums,
    SortedByConfidence,
    aurc_contributions,
    edges_of,
    metrics,
)
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
from visprism.analyses.subject import Measured, Subject
from visprism.core.errors import InputError
from visprism.core.options import option
from visprism.core.run import Run
from visprism.core.statistics import FEWEST_VALUES, mean_interval, wilson
from visprism.drawing.depth import from_zero
from visprism.drawing.registry import figure
from visprism.drawing.style import FAINT, KIND_COLORS, tip
from visprism.estimates import questions
from visprism.estimates.answers import Answer, EstimateInfo, few_outcomes
from visprism.estimates.calibration_error import calibration_error
from visprism.estimates.estimated import Estimated, Number
from visprism.estimates.findings import Finding, at_chance, chance_findings
from visprism.estimates.text import missing_text, text_of
from visprism.passes.outcomes import Outcomes, outcomes, outcomes_of
from visprism.passes.predict import predict
from visprism.passes.predictions import Predictions
from visprism.table.result import Result, Texts, column, estimate, result_type, scalar

Ends = tuple[Float[np.ndarray, " m"], Float[np.ndarray, " m"]]
LOSSES = ("nll", "brier", "signed_ece", "aurc")  # means whose interval needs 5 of each outcome
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
        claim="C12",
    ),
}
_BIAS = 0.01  # ECE of a calibrated model from which on the number of images is too small
_BAR, _GAP = KIND_COLORS["conv"], KIND_COLORS["attention"]
_COVERAGES = 200  # of the curve of risk and coverage, at most


@result_type("calibration")
class CalibrationMetrics(Result):
    """Every metric of predictions with its interval; one row per metric and cut-off."""

    drawn_in = "reliability"

    metric: Texts = column("Metric", "", "name of the metric")
    cutoff: np.ndarray = column(
        "Cut-off", "", "of the confidence; NaN for metrics without a cut-off"
    )
    value: Estimated = estimate(
        "Value", "", "NaN where it is undefined, such as the accuracy of no image", keep=True
    )
    bins: int = scalar("Bins", "", "bins of the calibration errors", default=10)
    passes: int = scalar(
        "Passes", "", "number of passes or models whose probabilities are averaged", default=1
    )
    classes: int = scalar("Classes", "", "number of classes of the model", default=0)
    calibrated_ece: float = scalar(
        "ECE if calibrated",
        "",
        "expected ECE of a calibrated model in as many images",
        default=nan,
    )

    def of(self, metric: str, cutoff: float | None = None) -> Number:
        """A metric with its interval: ``result.of("ece")``, ``result.of("unc", 0.9).high``."""
        at = np.isnan(self.cutoff) if cutoff is None else np.isclose(self.cutoff, cutoff)
        (rows,) = np.nonzero((self.metric == metric) & at)
        if len(rows) != 1:
            names = ", ".join(dict.fromkeys(self.metric.tolist()))
            at_cutoff = "" if cutoff is None else f" at cut-off {cutoff}"
            raise InputError(f"metric must be one of {names}, got {metric!r}{at_cutoff}")
        number = self.value[int(rows[0])]
        if metric in LOSSES and np.isnan(number.low):
            number.missing = self._few()
        return number

    def sentences(self) -> Iterator[str | Finding]:
        """Accuracy, NLL, ECE, and the direction of the calibration error if significant."""
        origin = self.provenance
        images = self.images_text
        accuracy, nll, ece = (self.of(name) for name in ("accuracy", "nll", "ece"))
        debiased = text_of(self.of("debiased_ece"), ".1%")
        yield (
            f"accuracy {text_of(accuracy, '.1%')}, NLL {text_of(nll)} over {images}"
            f"{missing_text(nll, ' of the NLL')}"
        )
        yield from chance_findings(accuracy, origin.images, self.classes, origin.split)
        yield f"ECE {ece:.1%} over {images}, debiased {debiased}, {self._direction()}"
        if self._too_few:
            yield Finding(
                f"too few images for the ECE: a calibrated model has an expected ECE of "
                f"{self.calibrated_ece:.1%} in {images}, the model {ece:.1%}",
                "VP102",
            )

    def answers(self) -> tuple[Answer, ...]:
        """Accuracy, NLL, debiased ECE and signed ECE."""
        return tuple(
            info.answer(
                f"{self.identifier}.{metric}",
                self.of(metric),
                reading=self._reading(metric),
            )
            for metric, info in ANSWERED.items()
        )

    def _reading(self, metric: str) -> str:
        if metric not in ("debiased_ece", "signed_ece"):
            return ""
        few = metric == "debiased_ece" and self._too_few
        return f"{self._confidence()}{' (few images, VP102)' * few}"

    @property
    def _too_few(self) -> bool:
        """Whether a calibrated model would have much of this ECE in as many images."""
        return self.calibrated_ece > max(_BIAS, self.of("ece") / 2)

    @property
    def _at_chance(self) -> bool:
        return at_chance(self.of("accuracy"), self.provenance.images, self.classes)

    def _confidence(self) -> str:
        """Whether the model is over- or underconfident, by the sign of the signed ECE."""
        if self.of("accuracy") == 1:
            return "underconfident (all predictions are correct)"
        signed = self.of("signed_ece")
        if np.isnan(signed.low):
            return "undecided"
        if self._at_chance:
            return "accuracy at chance level"
        if signed.low <= 0 <= signed.high:
            return "neither over- nor underconfident"
        return "overconfident" if signed > 0 else "underconfident"

    def _few(self) -> str:
        n = self.provenance.images
        if n < FEWEST_VALUES:
            return f"fewer than {FEWEST_VALUES} images"
        return few_outcomes(np.arange(n) < round(float(self.of("accuracy")) * n))

    def _direction(self) -> str:
        """Overconfident or underconfident where the interval of the signed ECE excludes 0."""
        signed = self.of("signed_ece")
        text = f"confidence - accuracy {text_of(signed, '.1%')}"
        if self._at_chance:  # VP101: confidence is off by what the labels are
            return text
        if signed.low > 0:
            return f"overconfident ({text})"
        if signed.high < 0:
            return f"underconfident ({text})"
        if np.isnan(signed.low):
            return f"{text}{missing_text(signed)}"
        return f"over- or underconfidence not significant ({text})"


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
class RiskCoverage(Result):
    """Error rate of the most confident images; one row per coverage."""

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
@dataclass(frozen=True)
class Calibration(Analysis):
    """Accuracy, NLL, calibration errors and reliability diagram of predictions."""

    name = "calibration"
    images = Sizes(quick=512, standard=None, work=0.5)
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
    cutoff: tuple[float, ...] = option(
        (0.9,), "confidences above which predictions count as certain", minimum=0, below=1
    )
    samples: int = option(1, "number of passes with dropout, averaged", minimum=1)

    def measure(self, subject: Subject, run: Run) -> Sequence[Result]:
        """Predict the evaluation images once, and measure everything on the predictions."""
        if self.samples == 1:
            predictions = subject.predictions(run)
        else:
            predictions = predict(
                subject.model, subject.batches(), samples=self.samples, run=run
            )
        result = outcomes(predictions)
        return (
            _metrics_of(self, result),
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

    def cost(self, subject: Subject) -> Cost:
        """One pass per sample."""
        return Cost(per_image=float(self.samples))


def _metrics_of(
    _analysis: Calibration, predictions: Predictions | Outcomes
) -> CalibrationMetrics:
    """Accuracy, NLL, ECE and every other metric of predictions, with intervals over images.

    With p the probabilities of an image, t its target, f = max p its confidence:

    - accuracy; top5; nll, mean of -log p_t; brier, mean of the sum over classes of (p - 1_t)^2.
    - at a cut-off c: acc, the accuracy where f > c; freq, the fraction of images with f > c;
      unc, the fraction of wrong predictions with f <= c; iou, mean_iou of the images with
      f > c.
    - mean_iou: correct images of a class over those that are of it or predicted as it, mean
      over the classes that occur as targets.
    - ece, over bins (i/m, (i+1)/m] of f: the sum over bins of |correct images - sum of f| over
      all images; debiased_ece, see `visprism.estimates.calibration_error`; signed_ece, mean f
      minus accuracy, above 0 for an overconfident model; mce, the largest |accuracy - mean of
      f| of a bin with images; adaptive_ece, the ece of bins with equally many images, where an
      image on an edge counts in parts.
    - aurc: mean over i of the error rate of the i most confident images.

    Intervals: Wilson's for fractions of images; `visprism.core.statistics.mean_interval`, for
    skewed values, for nll, brier and signed_ece, and with at least 5 correct and 5 wrong
    predictions for aurc, whose values by image are its linearization; inversion of a test for
    the debiased ECE; none for ece, mce, adaptive_ece, iou and mean_iou, which are biased
    in few images.

    Costs one pass over the logits.

    Args:
        predictions: of a data set, or their outcomes.

    Source: Guo et al. (2017), eq. 3 and 5; Nguyen and O'Connor (2015), Posterior calibration
    and exploratory analysis, for equal counts; Geifman et al. (2019), Bias-reduced uncertainty
    estimation, for the aurc; Kumar et al. (2019), Verified uncertainty calibration, for the
    bias.
    """
    outcomes, bins = outcomes_of(predictions), _analysis.bins
    values = metrics(outcomes, list(map(float, _analysis.cutoff)), bins)
    error = calibration_error(outcomes.confidence, outcomes.correct.astype(bool), bins=bins)
    values["debiased_ece", nan] = error.debiased
    names, at = zip(*values, strict=True)
    metric, cutoff_column = np.array(names), np.array(at)
    low, high = _proportions(outcomes, metric, cutoff_column)
    by_image = np.full((len(outcomes), len(metric)), nan)
    by_image[:, metric == "accuracy"] = outcomes.correct[:, None]
    for name, losses in losses_of(outcomes).items():
        (row,) = np.flatnonzero(metric == name)
        by_image[:, row] = losses
        low[row], high[row] = loss_interval(outcomes, losses)
    low[-1], high[-1], by_image[:, -1] = error.low, error.high, error.by_image
    return CalibrationMetrics(
        metric=metric,
        cutoff=cutoff_column,
        value=Estimated(list(values.values()), low, high, by_image),
        bins=bins,
        passes=outcomes.passes,
        classes=outcomes.classes,
        calibrated_ece=error.calibrated,
        provenance=replace(outcomes.provenance, images=len(outcomes)),
    )


calibration = function_of(Calibration, _metrics_of, without=["samples"])


def _proportions(
    outcomes: Outcomes, metric: np.ndarray, cutoff: Float[np.ndarray, " m"]
) -> Ends:
    """Wilson intervals of the metrics that are fractions of images; NaN for the others."""
    low, high = np.full(len(metric), np.nan), np.full(len(metric), np.nan)
    images, correct = len(outcomes), outcomes.correct
    for row, (name, c) in enumerate(zip(metric.tolist(), cutoff.tolist(), strict=True)):
        above = outcomes.confidence > np.float32(c)
        counts = {
            "accuracy": (correct.sum(), images),
            "top5": (outcomes.top5.sum(), images),
            "acc": ((correct & above).sum(), above.sum()),
            "freq": (above.sum(), images),
            "unc": ((~correct & ~above).sum(), (~correct).sum()),
        }
        if name in counts:
            successes, trials = (np.array([int(count)]) for count in counts[name])
            (low[row],), (high[row],) = wilson(successes, trials)
    return low, high


def losses_of(outcomes: Outcomes) -> dict[str, Float[np.ndarray, " n"]]:
    """Losses and contributions of each image, whose means are metrics."""
    return {
        "nll": outcomes.nll,
        "brier": outcomes.brier,
        "signed_ece": outcomes.confidence - outcomes.correct.astype(np.float64),
        "aurc": aurc_contributions(SortedByConfidence.of(outcomes)),
    }


def loss_interval(outcomes: Outcomes, losses: Float[np.ndarray, " n"]) -> tuple[float, float]:
    """Interval of a mean loss; none for fewer than 5 correct or 5 wrong predictions."""
    few = few_outcomes(outcomes.correct.astype(bool))
    return (nan, nan) if few else mean_interval(losses)


def reliability(predictions: Predictions | Outcomes, *, bins: int = 10) -> Reliability:
    """Accuracy and mean confidence in bins (i/m, (i+1)/m] of the confidence.

    Args:
        predictions: of a data set, or their outcomes.
        bins: number of bins, m.

    Source: Niculescu-Mizil and Caruana (2005), Predicting good probabilities with supervised
    learning.
    """
    outcomes = outcomes_of(predictions)
    ranked = SortedByConfidence.of(outcomes)
    edges = np.append(ranked.num_above(edges_of(bins)), len(ranked))
    count = np.diff(edges)[::-1]
    confidence, correct = (np.diff(v)[::-1] for v in CumulativeSums.of(ranked).at(edges))
    upper = np.array(edges_of(bins))[::-1]
    filled = np.where(count > 0, count, np.nan)
    return Reliability(
        lower=np.append(0.0, upper[:-1]),
        upper=upper.copy(),
        count=count.copy(),
        frequency=count / len(ranked),
        confidence=confidence / filled,
        accuracy=correct / filled,
        ece=float(np.abs(correct - confidence).sum() / len(ranked)),
        provenance=outcomes.provenance,
    )


def risk_coverage(predictions: Predictions | Outcomes) -> RiskCoverage:
    """The error rate of the most confident images against their fraction of all images.

    Images of equal confidence each count with their mean error, so that their order does not
    matter. Coverages are equally spaced: 200, or one per image.

    Source: Geifman and El-Yaniv (2017), Selective classification for deep neural networks.
    """
    outcomes = outcomes_of(predictions)
    ranked = SortedByConfidence.of(outcomes)
    number = len(ranked)
    risk = 1 - CumulativeSums.of(ranked).correct[1:] / np.arange(1, number + 1)
    points = min(_COVERAGES, number)
    low, high = loss_interval(outcomes, losses_of(outcomes)["aurc"])
    few = few_outcomes(outcomes.correct.astype(bool))
    counts = np.unique(np.linspace(number / points, number, points).round())
    answered = counts.astype(np.int64)
    return RiskCoverage(
        coverage=counts / number,
        risk=risk[answered - 1].clip(min=0),
        confidence=ranked.confidence[answered - 1],
        aurc=Number(risk.mean(), low, high, missing=few),
        provenance=replace(outcomes.provenance, images=number),
    )


@figure(width=2.3, height=2.2)
def _(
    result: Reliability, ax: Axes, *, quantity: Literal["accuracy", "frequency"] = "accuracy"
) -> Axes:
    """Accuracy by confidence with the gap to the mean confidence, or a confidence histogram.

    A bin without images has no bar.
    """
    width = result.upper - result.lower
    if quantity == "frequency":
        _bars(ax, result, result.frequency, _BAR)
        ax.set(ylim=(0, 1), ylabel="Fraction of images")
    else:
        filled = result.select(result.count > 0)
        _bars(ax, filled, filled.accuracy, _BAR)
        for i, (confidence, accuracy) in enumerate(
            zip(filled.confidence.tolist(), filled.accuracy.tolist(), strict=True)
        ):
            middle = (filled.lower[i] + filled.upper[i]) / 2
            reach = 0.38 * width[0]
            ax.fill_between(
                [middle - reach, middle + reach],
                accuracy,
                confidence,
                facecolor="none",
                edgecolor=_GAP,
                hatch="//////",
                linewidth=0.5,
                label="_gap",
            )
            ax.plot(
                [middle - reach, middle + reach], [confidence] * 2, color=_GAP, linewidth=1.2
            )
        ax.plot([0, 1], [0, 1], color=FAINT, linewidth=0.8, linestyle=(0, (3, 2)))
        ax.text(0.03, 1.03, f"ECE {result.ece:.1%}", va="bottom", fontsize="small")
        ax.set(ylim=(0, 1.13), ylabel="Accuracy")  # no bar reaches the text
    ax.set(xlim=(0, 1), xlabel="Confidence")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(PercentFormatter(1, decimals=0))
    return ax


def _bars(ax: Axes, result: Reliability, heights: np.ndarray, color: str) -> None:
    bars = ax.bar(
        result.lower,
        heights,
        width=result.upper - result.lower,
        align="edge",
        color=color,
        edgecolor="white",
        linewidth=0.5,
    )
    for bar, count, height in zip(bars, result.count.tolist(), heights.tolist(), strict=True):
        bar.set_gid(tip(f"{count} images · {height:.1%}"))


@figure(width=2.5, height=2.1)
def _(result: RiskCoverage, ax: Axes) -> Axes:
    """Error rate of the most confident images by coverage."""
    ax.plot(result.coverage, result.risk, color=_GAP, linewidth=1.2, gid=tip("error rate"))
    ax.fill_between(result.coverage, result.risk, color=_GAP, alpha=0.15, linewidth=0)
    ax.text(0.03, 0.96, f"AURC {result.aurc:.3g}", va="top", fontsize="small",
            transform=ax.transAxes)  # fmt: skip
    ax.set(xlim=(0, 1), xlabel="Coverage", ylabel="Error rate")
    from_zero(ax)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(PercentFormatter(1, decimals=None))
    return ax
