"""Accuracy and calibration: whether the confidence of a model is its accuracy.

Source: Guo et al. (2017), On calibration of modern neural networks.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import nan
from typing import Any, Literal

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from visprism import kit
from visprism.analyses.predictions import confusions, error_consistency, temperature
from visprism.drawing import style
from visprism.estimates import calibration_error, findings
from visprism.estimates.answers import mean_loss
from visprism.passes.averaged import MonteCarloDropout, dropout_modules
from visprism.passes.outcomes import Outcomes, outcomes, outcomes_of
from visprism.passes.predict import predict
from visprism.passes.predictions import Predictions

_LOSS = kit.Reduce(mean_loss)
_BIAS = 0.01  # ECE of a calibrated model from which on the number of images is too small
_BAR, _GAP = style.KIND_COLORS["conv"], style.KIND_COLORS["attention"]
_FIGURES = {"": {}, "histogram": {"quantity": "frequency"}}
_COVERAGES = 200  # of the curve of risk and coverage, at most


@kit.result("calibration", "Accuracy and calibration", figures={})
class CalibrationMetrics(kit.Result):
    """Every metric of predictions with its interval.

    Accuracy, losses and calibration errors with 95% intervals over images. The ECE of few
    images is too large; the debiased ECE corrects for their number.

    With p the probabilities of an image, t its target, f = max p its confidence. Intervals of
    nll, brier, signed_ece and aurc are `core.statistics.mean_interval`'s, with at least 5
    correct and 5 wrong predictions. The biased ece, mce and adaptive_ece have none.

    Source: Guo et al. (2017), eq. 3 and 5; Nguyen and O'Connor (2015) for equal counts; Geifman
    et al. (2019) for the aurc; Kumar et al. (2019) for the bias.
    """

    drawn_in = "reliability"

    accuracy: kit.Number = kit.estimate(
        "accuracy",
        "%",
        "Wilson's interval",
        asks="How accurate is the model?",
        better="higher",
        reduce=kit.Reduce.PROPORTION.of("correct"),
    )
    top5: kit.Number = kit.estimate(
        "top-5 accuracy",
        "%",
        "whether the target is in the five classes",
        reduce=kit.Reduce.PROPORTION,
    )
    nll: kit.Number = kit.estimate(
        "NLL",
        "nats",
        "mean of -log p_t",
        asks="How likely are the targets?",
        reduce=_LOSS.of("nll", "correct"),
    )
    brier: kit.Number = kit.estimate(
        "Brier score",
        "",
        "mean of the sum over classes of (p - 1_t)^2",
        reduce=_LOSS.of("brier", "correct"),
    )
    ece: kit.Number = kit.estimate(
        "ECE",
        "%",
        "sum over bins (i/m, (i+1)/m] of f of |correct images - sum of f|, over all images",
    )
    debiased_ece: kit.Number = kit.estimate(
        "debiased ECE",
        "%",
        "see `visprism.estimates.calibration_error`",
        asks="Is the model calibrated?",
        better="lower",
        comparison="bounded",
    )
    signed_ece: kit.Number = kit.estimate(
        "signed ECE (mean confidence - accuracy)",
        "%",
        "above 0 for an overconfident model",
        asks="Is the model over- or underconfident?",
        reduce=_LOSS.of("signed_ece", "correct"),
    )
    mce: kit.Number = kit.estimate(
        "MCE", "%", "largest |accuracy - mean of f| of a bin with images"
    )
    adaptive_ece: kit.Number = kit.estimate(
        "adaptive ECE",
        "%",
        "ECE of bins with equally many images, where an image on an edge counts in parts",
    )
    aurc: kit.Number = kit.estimate(
        "AURC",
        "",
        "mean over i of the error rate of the i most confident images",
        keep=True,
        reduce=_LOSS.of("aurc", "correct"),
    )
    bins: int = kit.scalar("Bins", "", "bins of the calibration errors", default=10)
    classes: int = kit.scalar("Classes", "", "number of classes of the model", default=0)
    calibrated_ece: float = kit.scalar(
        "ECE if calibrated", "", "expected of a calibrated model in as many images", default=nan
    )

    def sentences(self) -> Iterator[str | kit.Finding]:
        """The answers, an accuracy at chance level, and too few images."""
        yield from super().sentences()
        yield from findings.chance_findings(self.accuracy, self.provenance, self.classes)
        if self._too_few:
            yield kit.Finding(
                f"too few images for the ECE: a calibrated model has an expected ECE of "
                f"{self.calibrated_ece:.1%} in {self.images_text}, the model {self.ece:.1%}",
                "VP102",
            )

    def reading(self, name: str, row: int) -> dict[str, Any]:
        """Whether the model is over- or underconfident, of both calibration errors."""
        few = " (few images, VP102)" * (name == "debiased_ece" and self._too_few)
        return {"reading": self._confidence() + few} if name.endswith("_ece") else {}

    @property
    def _too_few(self) -> bool:
        """Whether a calibrated model would have much of this ECE in as many images."""
        return self.calibrated_ece > max(_BIAS, self.ece / 2)

    def _confidence(self) -> str:
        """Whether the model is over- or underconfident, by the sign of the signed ECE."""
        signed = self.signed_ece
        if self.accuracy == 1:
            return "underconfident (all predictions are correct)"
        if np.isnan(signed.low):
            return "undecided"
        if findings.at_chance(self.accuracy, self.provenance.images, self.classes):
            return "accuracy at chance level"  # the confidence is off by what the labels are
        if signed.low <= 0 <= signed.high:
            return "over- or underconfidence not significant"
        return "overconfident" if signed > 0 else "underconfident"


@kit.result(
    "reliability",
    "Reliability diagram",
    figures={"": {}, "histogram": {"quantity": "frequency"}},
)
class Reliability(kit.Result):
    """Reliability diagram and confidence histogram; one row per bin, empty bins too.

    Each bar is a bin of the confidence: its height is the accuracy, the line its mean
    confidence, the hatched part the gap. Bars below the diagonal are overconfident, bars above
    it underconfident.
    """

    lower: np.ndarray = kit.column("Above", "", "lower edge of the bin, exclusive")
    upper: np.ndarray = kit.column("Up to", "", "upper edge of the bin, inclusive")
    count: np.ndarray = kit.column("Images", "", "number of images in the bin")
    frequency: np.ndarray = kit.column("Fraction of images", "", "of all images")
    confidence: np.ndarray = kit.column(
        "Confidence", "", "mean in the bin; NaN in an empty bin"
    )
    accuracy: np.ndarray = kit.column("Accuracy", "", "of the bin, or NaN")
    ece: float = kit.scalar("ECE", default=0.0)


@kit.result("risk-coverage", "Error rate by coverage", table=False)
class RiskCoverage(kit.Curve):
    """Error rate of the most confident images; one row per coverage.

    The error rate of the most confident images. Where the curve starts near 0, the confidence
    separates correct from incorrect predictions.
    """

    value_name = "risk"
    x_name = "coverage"
    scale = "zero"

    coverage: np.ndarray = kit.column(
        "Coverage", "", "fraction of images that are predicted, the most confident first"
    )
    risk: np.ndarray = kit.column("Error rate", "", "of these images")
    confidence: np.ndarray = kit.column("Lowest confidence", "", "of these images")
    aurc: kit.Number = kit.estimate(
        "AURC", "", "area under the curve", reduce=_LOSS.of("aurc", "correct"), default=0.0
    )


@kit.analysis
class Calibration(kit.Analysis):
    """Accuracy, NLL, calibration errors and reliability diagram of predictions."""

    name = "calibration"
    images = kit.Sizes(quick=None, standard=None, work=0.5)
    rank = 0
    group = "predictions"
    needs = kit.Needs.TARGETS | kit.Needs.OUTPUTS
    claims = ("C12",)
    source = "Guo et al. (2017); Park & Kim (2022), app. C"
    gives = (
        CalibrationMetrics,
        confusions.ClassAccuracy,
        confusions.Confusions,
        Reliability,
        RiskCoverage,
        temperature.TemperatureScaling,
        error_consistency.DifferingPictures,
        error_consistency.ErrorConsistency,
    )

    bins: int = kit.option(10, "number of bins of the confidence", minimum=1)
    samples: int = kit.option(1, "number of passes with dropout, averaged", minimum=1)

    def measure(self, subject: kit.Subject, run: kit.Run) -> Sequence[kit.Result]:
        """Predict the evaluation images once, and measure everything on the predictions."""
        if self.samples == 1:
            predictions = subject.predictions(run)
        else:
            model = MonteCarloDropout(subject.model, self.samples, seed=run.seed)
            predictions = predict(model, subject.batches(), run=run)
        result = outcomes(predictions)
        return (
            calibration(result, bins=self.bins),
            *confusions.accuracy_by_class(result, subject.images.class_names),
            reliability(result, bins=self.bins),
            risk_coverage(result),
            temperature.temperature_if_finite(predictions, seed=run.seed),
            result,
        )

    def compare(
        self, first: kit.Measured, second: kit.Measured, run: kit.Run
    ) -> Sequence[kit.Result]:
        """Error consistency, and the images that differ."""
        a, b = (next(r for r in m.results if isinstance(r, Outcomes)) for m in (first, second))
        return error_consistency.compared(a, b, first.subject, second.subject.name)

    def inapplicable(self, subject: kit.Subject) -> str | None:
        """Several samples of a model without dropout."""
        reason = super().inapplicable(subject)
        if reason is None and self.samples > 1 and not dropout_modules(subject.model):
            return "samples above 1 need a model with dropout"
        return reason

    def cost(self, subject: kit.Subject) -> kit.Cost:
        """One pass per sample."""
        return kit.Cost(per_image=self.samples)


def calibration(predictions: Predictions | Outcomes, *, bins: int = 10) -> CalibrationMetrics:
    """Accuracy, NLL, ECE and every other metric of predictions, with intervals over images.

    The fields of `CalibrationMetrics` state each formula. Costs one pass over the logits.

    Args:
        predictions: of a data set, or their outcomes.
        bins: number of bins of the confidence, m.
    """
    o = outcomes_of(predictions)
    n, correct = len(o), o.correct.astype(np.float64)
    ranked, binned = (
        _Ranked(o),
        calibration_error.Bins.of(o.confidence, o.correct.astype(bool), bins),
    )
    gap = np.abs(binned.correct - binned.confidence)[0]
    even = np.linspace(0, n, bins + 1)  # of equally many images, the most confident first
    even_gap = np.diff(np.interp(even, np.arange(n + 1), ranked.sums_of(ranked.gap)))
    error = calibration_error.calibration_error(o.confidence, o.correct.astype(bool), bins=bins)
    values = {
        "correct": correct,
        "top5": o.top5.astype(np.float64),
        "nll": o.nll,
        "brier": o.brier,
        "signed_ece": o.confidence - correct,
        "aurc": ranked.aurc_by_image,
    }
    return CalibrationMetrics.reduced(
        values,
        ece=error.value,
        debiased_ece=error.debiased,
        mce=(gap / binned.filled[0]).max(),
        adaptive_ece=np.abs(even_gap).sum() / n,
        bins=bins,
        classes=o.classes,
        calibrated_ece=error.calibrated,
        provenance=replace(o.provenance, images=n),
    )


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
    binned = calibration_error.Bins.of(o.confidence, o.correct.astype(bool), bins)
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
    return RiskCoverage.reduced(
        {"aurc": ranked.aurc_by_image, "correct": o.correct},
        coverage=counts / number,
        risk=ranked.risk[counts - 1],
        confidence=ranked.confidence[counts - 1],
        provenance=replace(o.provenance, images=number),
    )


@kit.figure(width=2.3, height=2.2)
def _(
    result: Reliability, ax: Axes, *, quantity: Literal["accuracy", "frequency"] = "accuracy"
) -> Axes:
    """Accuracy by confidence with the gap to the mean confidence, or a confidence histogram.

    A bin without images has no bar.
    """
    result, gap = result.select(result.count > 0), quantity == "accuracy"
    middle, width = (
        (result.lower + result.upper) / 2,
        result.upper - result.lower,
    )
    heights = getattr(result, quantity)
    bars = ax.bar(middle, heights, width, color=_BAR, edgecolor="white", linewidth=0.5)
    for bar, count, height in zip(bars, result.count.tolist(), heights.tolist(), strict=True):
        bar.set_gid(style.tip(f"{count} images · {height:.1%}"))
    if gap:
        hatched = {"color": "none", "edgecolor": _GAP, "hatch": "//////", "linewidth": 0.5}
        rise = result.confidence - result.accuracy
        ax.bar(middle, rise, 0.76 * width, result.accuracy, label="_gap", **hatched)
        reach = 0.38 * width
        ax.hlines(result.confidence, middle - reach, middle + reach, color=_GAP, linewidth=1.2)
        ax.plot([0, 1], [0, 1], color=style.FAINT, linewidth=0.8, linestyle=(0, (3, 2)))
        ax.text(0.03, 1.03, f"ECE {result.ece:.1%}", va="bottom", fontsize="small")
    ax.set(xlim=(0, 1), xlabel="Confidence")
    ax.set(ylim=(0, 1.13 if gap else 1), ylabel="Accuracy" if gap else "Fraction of images")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(PercentFormatter(1, decimals=0))
    return ax
