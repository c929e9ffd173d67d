"""Results of calibration: every metric of predictions, reliability, and temperature scaling."""

from math import isfinite, nan

import numpy as np

from visprism.core.errors import InputError
from visprism.core.statistics import FEWEST_DIFFERENT, FEWEST_VALUES
from visprism.estimates import questions
from visprism.estimates.answers import Answer
from visprism.estimates.chance import chance_findings
from visprism.estimates.findings import Finding
from visprism.estimates.text import images_text, interval_text
from visprism.results.calibration_error import FEWEST_IMAGES
from visprism.results.differences import few_outcomes
from visprism.table.result import Result, column, result_type, scalar

_FEW_OUTCOMES = (
    f"fewer than {FEWEST_DIFFERENT} predictions are correct, or fewer than "
    f"{FEWEST_DIFFERENT} are wrong"
)
_BIAS = 0.01  # ECE of a calibrated model from which on the number of images is too small


@result_type("calibration")
class Calibration(Result):
    """Every metric of predictions with its interval; one row per metric and cut-off."""

    metric: np.ndarray = column("Metric", "", "name of the metric")
    cutoff: np.ndarray = column(
        "Cut-off", "", "of the confidence; NaN for metrics without a cut-off"
    )
    value: np.ndarray = column(
        "Value", "", "NaN where it is undefined, such as the accuracy of no image"
    )
    low: np.ndarray = column(
        "Low", "", "lower end of the 95% interval over images; NaN where there is none"
    )
    high: np.ndarray = column("High", "", "upper end of the 95% interval over images")
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

    def of(self, metric: str, cutoff: float | None = None) -> float:
        """The value of a metric: ``result.of("ece")``, ``result.of("unc", 0.9)``."""
        return self.value[self._row(metric, cutoff)].item()

    def interval(self, metric: str, cutoff: float | None = None) -> tuple[float, float]:
        """The ends of the 95% interval of a metric."""
        row = self._row(metric, cutoff)
        return self.low[row].item(), self.high[row].item()

    def findings(self) -> tuple[Finding, ...]:
        """Accuracy, NLL, ECE, and the direction of the calibration error if significant."""
        images = images_text(self.provenance.images, self.provenance.split)
        missing = self._missing("nll", of=" of the NLL")
        accuracy = (
            f"accuracy {self._text('accuracy', '.1%')}, NLL {self._text('nll')} over {images}"
            f"{missing}"
        )
        chance = chance_findings(
            self.of("accuracy"), self.provenance.images, self.classes, self.provenance.split
        )
        sentences = [Finding(accuracy), *chance]
        ece = f"ECE {self.of('ece'):.1%} over {images}"
        if "debiased_ece" not in self.metric:  # a file of version 0.1
            return (*sentences, Finding(f"{ece}, {self._direction()}"))
        sentences.append(
            Finding(f"{ece}, debiased {self._text('debiased_ece', '.1%')}, {self._direction()}")
        )
        if self.calibrated_ece > max(_BIAS, self.of("ece") / 2):
            sentences.append(
                Finding(
                    f"too few images for the ECE: a calibrated model has an expected ECE of "
                    f"{self.calibrated_ece:.1%} in {images}, the model {self.of('ece'):.1%}",
                    "VP102",
                )
            )
        return tuple(sentences)

    def answers(self) -> tuple[Answer, ...]:
        """Accuracy, NLL, debiased ECE and signed ECE."""
        rows = {
            "accuracy": (questions.ACCURACY.text, "accuracy", "%", ""),
            "nll": (questions.LIKELIHOOD.text, "NLL", "nats", ""),
            "debiased_ece": (questions.CALIBRATION.text, "debiased ECE", "%", ""),
            "signed_ece": (
                questions.CONFIDENCE.text,
                "signed ECE (mean confidence - accuracy)",
                "%",
                "C12",
            ),
        }
        return tuple(
            Answer(
                question,
                quantity,
                self.of(metric),
                *self.interval(metric),
                unit=unit,
                over="images",
                claim=claim,
                reading=self._confidence() if metric in ("debiased_ece", "signed_ece") else "",
            )
            for metric, (question, quantity, unit, claim) in rows.items()
            if metric in self.metric
        )

    def _confidence(self) -> str:
        """Whether the model is over- or underconfident, by the sign of the signed ECE."""
        if "signed_ece" not in self.metric:
            return ""
        if self.of("accuracy") == 1:
            return "underconfident (all predictions are correct)"
        low, high = self.interval("signed_ece")
        if low <= 0 <= high:
            return "neither over- nor underconfident"
        return "overconfident" if self.of("signed_ece") > 0 else "underconfident"

    def _row(self, metric: str, cutoff: float | None) -> int:
        at = np.isnan(self.cutoff) if cutoff is None else np.isclose(self.cutoff, cutoff)
        (rows,) = np.nonzero((self.metric == metric) & at)
        if len(rows) != 1:
            names = ", ".join(dict.fromkeys(self.metric.tolist()))
            at_cutoff = "" if cutoff is None else f" at cut-off {cutoff}"
            raise InputError(f"metric must be one of {names}, got {metric!r}{at_cutoff}")
        return int(rows[0])

    def _text(self, metric: str, form: str = ".3g") -> str:
        return interval_text(self.of(metric), *self.interval(metric), form)

    def _missing(self, metric: str, of: str = "") -> str:
        """Why a mean of losses has no interval; empty where it has one."""
        images = self.provenance.images
        few = few_outcomes(round(self.of("accuracy") * images), images)
        return _missing_interval(self.interval(metric)[0], images, few, of=of)

    def _direction(self) -> str:
        """Overconfident or underconfident where the interval of the signed ECE excludes 0."""
        signed, (low, high) = self.of("signed_ece"), self.interval("signed_ece")
        text = f"confidence - accuracy {interval_text(signed, low, high, '.1%')}"
        if low > 0:
            return f"overconfident ({text})"
        if high < 0:
            return f"underconfident ({text})"
        if np.isnan(low):
            return f"{text}{self._missing('signed_ece')}"
        return f"over- or underconfidence not significant ({text})"


def _missing_interval(
    low: float,
    images: int,
    few: str,
    *,
    of: str = "",
    before: str = " (",
    after: str = ")",
) -> str:
    """Why a mean of losses has no interval; empty where it has one.

    Args:
        low: lower end of the interval, NaN where there is none.
        images: number of images.
        few: what `few_outcomes` says of them.
        of: of what there is no interval.
        before: text before the reason.
        after: text after it.
    """
    if isfinite(low) or not images:
        return ""
    few = few or f"fewer than {FEWEST_DIFFERENT} images differ from the others"
    if images < FEWEST_VALUES:
        few = f"fewer than {FEWEST_VALUES} images"
    return f"{before}no interval{of}: {few}{after}"


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
    aurc: float = scalar(
        "AURC", "", "area under the curve: mean error rate over all coverages", default=0.0
    )
    aurc_low: float = scalar(
        "AURC, low", "", "lower end of its 95% interval over images", default=nan
    )
    aurc_high: float = scalar(
        "AURC, high", "", "upper end of its 95% interval over images", default=nan
    )

    def findings(self) -> tuple[Finding, ...]:
        """The area under the curve, and the error rate of the more confident half."""
        half = int(np.abs(self.coverage - 0.5).argmin())
        images = images_text(self.provenance.images, self.provenance.split)
        aurc = interval_text(self.aurc, self.aurc_low, self.aurc_high)
        n = self.provenance.images
        few = few_outcomes(n - round(float(self.risk[-1]) * n), n)
        recorded = n < FEWEST_VALUES or few  # earlier files have no interval
        missing = _missing_interval(self.aurc_low, n if recorded else 0, few)
        return (
            Finding(
                f"AURC {aurc} over {images}{missing}: error rate {self.risk[half]:.1%} at "
                f"coverage {self.coverage[half]:.0%}, {self.risk[-1]:.1%} at coverage 100%"
            ),
        )


@result_type("temperature")
class Temperature(Result):
    """A temperature, and its effect on images that it was not fitted on."""

    temperature: float = scalar(
        "Temperature",
        "",
        "divisor of the logits; above 1 for an overconfident model",
        default=1.0,
    )
    temperature_low: float = scalar(
        "Low", "", "lower end of the 95% interval over the fitted images", default=nan
    )
    temperature_high: float = scalar(
        "High", "", "upper end of the 95% interval over the fitted images", default=nan
    )
    folds: int = scalar(
        "Folds",
        "",
        "of the cross-fitted effect; 0: the effect is that of the temperature on other images",
        default=0,
    )
    fitted_images: int = scalar(
        "Fitted images", "", "images that the temperature is fitted on", default=0
    )
    images: int = scalar("Images", "", "that the effect is measured on", default=0)
    nll_before: float = scalar("NLL before", "nats", "of these images", default=nan)
    nll_after: float = scalar("NLL after", "nats", "of these images", default=nan)
    nll_change: float = scalar("Change of NLL", "nats", "after minus before", default=nan)
    nll_change_low: float = scalar(
        "Low", "nats", "lower end of the paired 95% interval of the change", default=nan
    )
    nll_change_high: float = scalar(
        "High", "nats", "upper end of the paired 95% interval of the change", default=nan
    )
    ece_before: float = scalar("ECE before", "", "of these images", default=nan)
    ece_after: float = scalar("ECE after", "", "of these images", default=nan)
    debiased_before: float = scalar("Debiased ECE before", "", "of the model", default=nan)
    debiased_before_low: float = scalar("Low", "", "of its 95% interval", default=nan)
    debiased_before_high: float = scalar("High", "", "of its 95% interval", default=nan)
    debiased_after: float = scalar(
        "Debiased ECE after", "", "of the model with scaled logits", default=nan
    )
    debiased_after_low: float = scalar("Low", "", "of its 95% interval", default=nan)
    debiased_after_high: float = scalar("High", "", "of its 95% interval", default=nan)
    reason: str = scalar("Reason", "", "why there is no temperature", default="")

    def findings(self) -> tuple[Finding, ...]:
        """The temperature with its effect on NLL and ECE."""
        if self.reason:
            return (Finding(f"no temperature: {self.reason.rstrip('.')}"),)
        fitted = interval_text(self.temperature, self.temperature_low, self.temperature_high)
        change = interval_text(self.nll_change, self.nll_change_low, self.nll_change_high)
        significant = self.nll_change_low > 0 or self.nll_change_high < 0
        verdict = "" if significant or np.isnan(self.nll_change_low) else ", not significant"
        few = "" if np.isfinite(self.temperature_low) else _FEW_OUTCOMES
        missing = _missing_interval(
            self.nll_change_low, self.images, few, before=", ", after=""
        )
        split = self.provenance.split
        text = f"temperature {fitted}, fitted on {images_text(self.fitted_images, split)}"
        text += f" (no interval: {few})" * bool(few)
        effect = (
            f"NLL from {self.nll_before:.3g} to {self.nll_after:.3g} (change "
            f"{change}{verdict}{missing}) and ECE from {self.ece_before:.1%} to "
            f"{self.ece_after:.1%}"
        )
        if not self.folds:  # a file of version 0.1
            over = images_text(self.images)
            return (
                Finding(text),
                Finding(f"on {over} that it was not fitted on, it changes {effect}"),
            )
        return (
            Finding(f"{text}{self._direction()}"),
            Finding(
                f"temperature scaling, cross-fitted in {self.folds} folds, changes {effect} "
                f"over {images_text(self.images, split)}"
            ),
            Finding(self._remainder()),
        )

    def answers(self) -> tuple[Answer, ...]:
        """The temperature, and the debiased ECE of the scaled logits."""
        if self.reason:
            return ()
        temperature = Answer(
            questions.TEMPERATURE.text,
            "temperature",
            self.temperature,
            self.temperature_low,
            self.temperature_high,
            over="images",
            claim="C12",
        )
        remainder = Answer(
            questions.CALIBRATION.text,
            "debiased ECE after temperature scaling",
            self.debiased_after,
            self.debiased_after_low,
            self.debiased_after_high,
            unit="%",
            over="images",
        )
        return (temperature, remainder) if self.folds else (temperature,)

    def _direction(self) -> str:
        """Whether the logits are too large or too small, where the interval excludes 1."""
        if self.temperature_low > 1:
            return ": the logits are too large (overconfident)"
        if self.temperature_high < 1:
            return ": the logits are too small (underconfident)"
        if np.isnan(self.temperature_low):
            return ""
        return ": not significantly different from 1"

    def _remainder(self) -> str:
        """What of the calibration error is not one of the scale of the logits."""
        before, after = (
            interval_text(
                getattr(self, name),
                getattr(self, f"{name}_low"),
                getattr(self, f"{name}_high"),
                ".1%",
            )
            for name in ("debiased_before", "debiased_after")
        )
        over = images_text(self.images, self.provenance.split)
        text = f"debiased ECE {before}, after temperature scaling {after}, over {over}"
        if self.debiased_after_low > 0:
            return f"{text}: a significant calibration error is not one of the logits' scale"
        if self.debiased_before_low > 0:
            return f"{text}: no significant calibration error remains beside the logits' scale"
        if not np.isfinite([self.debiased_before_low, self.debiased_after_low]).all():
            return f"{text} (no interval: fewer than {FEWEST_IMAGES} images)"
        return f"{text}: neither is significant"
