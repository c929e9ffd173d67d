"""Results on corrupted images: metrics by corruption and severity, and corruption errors."""

from collections.abc import Mapping
from math import nan

import numpy as np

from visprism.core.errors import InputError
from visprism.estimates import questions
from visprism.estimates.answers import POINTS, Answer
from visprism.estimates.chance import chance_findings
from visprism.estimates.findings import Finding
from visprism.estimates.text import images_text, interval_text, points_text
from visprism.table.result import Result, column, result_type, scalar

CLEAN = ("clean", 0)  # the condition of images that are not corrupted

# Names of means over all corruptions and severities.
MEAN_ACCURACY = "mean accuracy on corrupted images"
MEAN_NLL = "mean NLL on corrupted images"
MEAN_DROP = "mean accuracy drop from clean images"

# AlexNet's error on ImageNet-C, mean over the five severities (Hendrycks and Dietterich 2019,
# table 1, in full digits from the authors' repository), for images of 224x224 pixels.
ALEXNET = {
    "gaussian_noise": 0.886428,
    "shot_noise": 0.894468,
    "impulse_noise": 0.922640,
    "defocus_blur": 0.819880,
    "glass_blur": 0.826268,
    "motion_blur": 0.785948,
    "zoom_blur": 0.798360,
    "snow": 0.866816,
    "frost": 0.826572,
    "fog": 0.819324,
    "brightness": 0.564592,
    "contrast": 0.853204,
    "elastic_transform": 0.646056,
    "pixelate": 0.717840,
    "jpeg_compression": 0.606500,
}
ALEXNET_SIZE, ALEXNET_CLASSES = (224, 224), 1000


@result_type("robustness")
class Robustness(Result):
    """Every metric of `Calibration` under each condition; one row per condition and metric."""

    corruption: np.ndarray = column(
        "Corruption", "", "name of the corruption; 'clean' for images without one"
    )
    severity: np.ndarray = column("Severity", "", "1 (mild) to 5 (severe); 0 for clean images")
    metric: np.ndarray = column("Metric", "", "name of the metric, as in the calibration")
    cutoff: np.ndarray = column(
        "Cut-off", "", "of the confidence; NaN for metrics without a cut-off"
    )
    value: np.ndarray = column("Value", "", "value of the metric")
    low: np.ndarray = column(
        "Low", "", "lower end of the 95% interval over images; NaN where there is none"
    )
    high: np.ndarray = column("High", "", "upper end of the 95% interval over images")
    change: np.ndarray = column(
        "Change", "", "of accuracy and NLL from clean images, paired by image; otherwise NaN"
    )
    change_low: np.ndarray = column(
        "Change, low", "", "lower end of the paired 95% interval over images"
    )
    change_high: np.ndarray = column(
        "Change, high", "", "upper end of the paired 95% interval over images"
    )
    mean_accuracy: float = scalar(
        "Mean accuracy", "", "mean over corruptions and severities", default=nan
    )
    mean_accuracy_low: float = scalar(
        "Mean accuracy, low", "", "lower end of the 95% interval over images", default=nan
    )
    mean_accuracy_high: float = scalar(
        "Mean accuracy, high", "", "upper end of the 95% interval over images", default=nan
    )
    mean_drop: float = scalar(
        "Mean accuracy drop", "", "from clean images, mean over conditions", default=nan
    )
    mean_drop_low: float = scalar(
        "Mean accuracy drop, low",
        "",
        "lower end of the paired 95% interval over images",
        default=nan,
    )
    mean_drop_high: float = scalar(
        "Mean accuracy drop, high",
        "",
        "upper end of the paired 95% interval over images",
        default=nan,
    )
    classes: int = scalar("Classes", "", "number of classes of the model", default=0)

    def of(self, metric: str, corruption: str, severity: int) -> float:
        """The value of a metric without a cut-off: ``result.of("ece", "fog", 3)``."""
        at = (self.corruption == corruption) & (self.severity == severity)
        (rows,) = np.nonzero(at & (self.metric == metric) & np.isnan(self.cutoff))
        if len(rows) != 1:
            raise InputError(
                f"metric, corruption and severity must have been measured, got {metric!r} of "
                f"{corruption!r} at severity {severity}"
            )
        return self.value[rows[0]].item()

    def findings(self) -> tuple[Finding, ...]:
        """Mean accuracy with its paired drop, the largest drop, and the ECE."""
        rows = self.select(np.isnan(self.cutoff) & (self.corruption != CLEAN[0]))
        accuracy = rows.select(rows.metric == "accuracy")
        if not len(accuracy):
            return ()
        scope = (
            f"{len(accuracy)} conditions of "
            f"{_number(len(set(accuracy.corruption.tolist())), 'corruption')} at "
            f"{_severities(accuracy.severity)}"
        )
        images = images_text(self.provenance.images, self.provenance.split)
        return (
            Finding(f"{self._mean_text(accuracy)} over {scope} ({images}){self._drop_text()}"),
            *self._worst(accuracy),
            *self._chance(),
            *self._calibration(rows),
        )

    def answers(self) -> tuple[Answer, ...]:
        """Mean accuracy on corrupted images, and its drop from clean images."""
        question = questions.CORRUPTIONS.text
        quantities = {
            MEAN_ACCURACY: (
                self.mean_accuracy,
                self.mean_accuracy_low,
                self.mean_accuracy_high,
            ),
            MEAN_DROP: (
                self.mean_drop,
                self.mean_drop_low,
                self.mean_drop_high,
            ),
        }
        return tuple(
            Answer(
                question,
                quantity,
                *values,
                unit=POINTS if "drop" in quantity else "%",
                over="images",
                in_pixels=True,
                claim="C11",
            )
            for quantity, values in quantities.items()
            if np.isfinite(values[0])
        )

    def corruption_errors(
        self, *, reference: Mapping[str, float] | None = None
    ) -> "CorruptionErrors":
        """The error of each corruption, and the mCE where a reference applies.

        CE_c = sum over severities of the error / sum of the reference's, mCE = mean over c.
        Without a reference, as for CIFAR-10-C, papers report the mean over corruptions.

        Args:
            reference: mean error of a reference model over five severities, by corruption. By
                default AlexNet's for 224x224 pixels and 1000 classes, for which it was
                measured, and none otherwise.

        Source: Hendrycks and Dietterich (2019), Benchmarking neural network robustness to
        common corruptions and perturbations, sec. 4.1.
        """
        names = [c for c in dict.fromkeys(self.corruption.tolist()) if c != CLEAN[0]]
        if not names:
            raise InputError("results must hold at least one corruption, got clean images only")
        size = tuple(self.provenance.image_shape[-2:])
        comparable = size == ALEXNET_SIZE and self.classes == ALEXNET_CLASSES
        errors_of = reference if reference is not None else ALEXNET if comparable else {}
        rows = self.select(np.isnan(self.cutoff))
        parts = {name: rows.select(rows.corruption == name) for name in names}
        error = np.array([1 - _mean(parts[name], "accuracy") for name in names])
        against = np.array([errors_of.get(name, nan) for name in names])
        complete = [set(parts[c].severity.tolist()) == {1, 2, 3, 4, 5} for c in names]
        relative = np.where(complete, error / against, nan)
        counted = relative[np.isfinite(against)]
        clean = rows.select(rows.corruption == CLEAN[0])
        return CorruptionErrors(
            corruption=np.array(names),
            error=error,
            ece=np.array([_mean(parts[name], "ece") for name in names]),
            reference=against,
            relative=relative,
            clean_error=1 - _mean(clean, "accuracy") if len(clean) else nan,
            mean_error=float(error.mean()),
            mce=float(counted.mean()) if errors_of and len(counted) == len(errors_of) else nan,
            severities=", ".join(map(str, sorted({*rows.severity.tolist()} - {0}))),
            comparable=bool(errors_of),
            provenance=self.provenance,
        )

    def _mean_text(self, accuracy: "Robustness") -> str:
        mean = accuracy.value.mean() if np.isnan(self.mean_accuracy) else self.mean_accuracy
        text = interval_text(mean, self.mean_accuracy_low, self.mean_accuracy_high, ".1%")
        return f"mean accuracy on corrupted images {text}"

    def _drop_text(self) -> str:
        if np.isnan(self.mean_drop):
            return ""
        text = points_text(self.mean_drop, self.mean_drop_low, self.mean_drop_high)
        significant = self.mean_drop_low > 0 or self.mean_drop_high < 0
        verdict = "" if significant or np.isnan(self.mean_drop_low) else ", not significant"
        return f"; drop from clean images {text}, paired by image{verdict}"

    def _worst(self, accuracy: "Robustness") -> tuple[Finding, ...]:
        """The condition with the lowest accuracy, which is a selected extreme."""
        if len(accuracy) > 1 and not np.ptp(accuracy.value):
            return ()
        worst = int(accuracy.value.argmin())
        name = accuracy.corruption[worst].replace("_", " ")
        accuracy_text = interval_text(
            accuracy.value[worst], accuracy.low[worst], accuracy.high[worst], ".1%"
        )
        drop = ""
        if np.isfinite(accuracy.change[worst]):
            # The drop is minus the change, so that its ends change places.
            ends = (accuracy.change, accuracy.change_high, accuracy.change_low)
            value, low, high = (0.0 - end[worst] for end in ends)
            drop = f", paired drop {points_text(value, low, high)}"
        conditions = len(accuracy)
        images = images_text(self.provenance.images, self.provenance.split)
        selection = "" if conditions == 1 else ", intervals not adjusted for this selection"
        return (
            Finding(
                f"lowest accuracy of {_number(conditions, 'condition')}: {name} at severity "
                f"{accuracy.severity[worst]}, {accuracy_text}{drop}, over {images}{selection}"
            ),
        )

    def _chance(self) -> tuple[Finding, ...]:
        """VP101 where the accuracy on clean images is not significantly above chance."""
        clean = self.select((self.metric == "accuracy") & (self.corruption == CLEAN[0]))
        if not len(clean):
            return ()
        origin = self.provenance
        return chance_findings(float(clean.value[0]), origin.images, self.classes, origin.split)

    def _calibration(self, rows: "Robustness") -> tuple[Finding, ...]:
        metric = "debiased_ece" if "debiased_ece" in rows.metric else "ece"
        ece = rows.select(rows.metric == metric)
        if not len(ece):
            return ()
        clean = self.select((self.metric == metric) & (self.corruption == CLEAN[0]))
        beside = f", {clean.value[0]:.1%} on clean images" if len(clean) else ""
        name = metric.replace("_ece", " ECE").replace("ece", "ECE")
        over = images_text(self.provenance.images, self.provenance.split)
        text = (
            f"mean {name} on corrupted images {ece.value.mean():.1%}{beside}, over {over} "
            "(no interval: the ECE is no mean over images)"
        )
        return (Finding(text),)


@result_type("corruption-errors")
class CorruptionErrors(Result):
    """Error rate of each corruption, mean over its severities; one row per corruption."""

    corruption: np.ndarray = column("Corruption", "", "name of the corruption")
    error: np.ndarray = column("Error rate", "", "mean over severities")
    ece: np.ndarray = column("ECE", "", "mean over severities")
    reference: np.ndarray = column(
        "Reference",
        "",
        "error rate of AlexNet or of a given reference; NaN where there is none",
    )
    relative: np.ndarray = column(
        "CE", "", "error over that of the reference; NaN unless all severities were measured"
    )
    clean_error: float = scalar("Clean error rate", "", "of clean images", default=nan)
    mean_error: float = scalar("Mean error rate", "", "mean over corruptions", default=nan)
    mce: float = scalar(
        "mCE",
        "",
        "mean CE; NaN unless all corruptions of the reference were measured",
        default=nan,
    )
    severities: str = scalar("Severities", "", "that were measured", default="")
    comparable: bool = scalar("Comparable", "", "whether the reference applies", default=True)

    def findings(self) -> tuple[Finding, ...]:
        """Mean error with its severities, the mCE or why there is none, and the worst."""
        clean = (
            "" if np.isnan(self.clean_error) else f", {self.clean_error:.1%} on clean images"
        )
        plural = "y" if self.severities.isdigit() else "ies"
        severities = f" at severit{plural} {self.severities}" if self.severities else ""
        worst = int(self.error.argmax())
        origin = self.provenance
        images = f" ({images_text(origin.images, origin.split)})" if origin.images else ""
        sentences = [
            f"mean error rate {self.mean_error:.1%} over {_number(len(self), 'corruption')}"
            f"{severities}{clean}{images}",
            f"highest of {len(self)}: {self.corruption[worst].replace('_', ' ')}, "
            f"{self.error[worst]:.1%}, selected and without an interval",
        ]
        if np.isfinite(self.mce):
            sentences.append(f"mCE {self.mce:.1%} relative to the reference errors")
        elif not self.comparable:
            sentences.append(
                "mCE not given: AlexNet's errors are those of 224x224 pixels and 1000 classes"
            )
        return tuple(map(Finding, sentences))

    def answers(self) -> tuple[Answer, ...]:
        """Mean corruption error, where it is defined."""
        if np.isnan(self.mce):
            return ()
        return (Answer(questions.CORRUPTIONS.text, "mCE", self.mce, unit="%"),)


def _mean(rows: Robustness, metric: str) -> float:
    """Mean over severities."""
    return float(rows.value[rows.metric == metric].mean())


def _number(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _severities(values: np.ndarray) -> str:
    """The severities that were measured: ``severity 3``, ``severities 1, 3, 5``."""
    levels = sorted(set(values.tolist()))
    return f"severit{'y' if len(levels) == 1 else 'ies'} {', '.join(map(str, levels))}"
