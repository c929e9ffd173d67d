"""Corruptions: every metric of calibration on corrupted images, and the mCE.

Source: Hendrycks and Dietterich (2019), Benchmarking neural network robustness to common
corruptions and perturbations.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import nan
from typing import Any, Literal

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from matplotlib.ticker import PercentFormatter
from torch import nn

from visprism.analyses.base import (
    ANALYSES,
    Analysis,
    Cost,
    Needs,
    Section,
    Sizes,
    reason_of_error,
)
from visprism.analyses.predictions.calibration import calibration
from visprism.analyses.subject import Subject
from visprism.core.errors import InputError
from visprism.core.options import option
from visprism.core.run import DEFAULT_RUN, Run
from visprism.drawing.color_bars import UNIT, error_rate_bar
from visprism.drawing.registry import figure
from visprism.drawing.style import FAINT, INK, KIND_COLORS, SIMILARITY, tip
from visprism.estimates import questions
from visprism.estimates.answers import POINTS, Answer
from visprism.estimates.estimated import (
    Estimated,
    Number,
    mean,
    paired_proportion,
    proportion,
    skewed,
    within_one,
)
from visprism.estimates.findings import Finding, chance_findings
from visprism.estimates.text import (
    images_text,
    number_of,
    points_text,
    readable,
    text_of,
    titled,
)
from visprism.images.corruptions.corrupt import COMMON, change_of, check_images
from visprism.passes.batches import Batch
from visprism.passes.outcomes import Outcomes, outcomes
from visprism.passes.predict import predict
from visprism.passes.predictions import Predictions
from visprism.table.result import Result, Texts, column, estimate, result_type, scalar

CLEAN = ("clean", 0)  # the condition of images that are not corrupted

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
_ASKED: dict[str, Any] = {
    "question": questions.CORRUPTIONS,
    "claim": "C11",
    "in_pixels": True,
    "default": nan,
}
_WHITE_BELOW = 0.6  # error rate below which the cell is dark

Corruption = Literal[
    "gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "glass_blur",
    "motion_blur", "zoom_blur", "snow", "frost", "fog", "brightness", "contrast",
    "elastic_transform", "pixelate", "jpeg_compression", "speckle_noise", "gaussian_blur",
    "spatter", "saturate",
]  # fmt: skip
_SECONDS_PER_PIXEL = 4e-7  # of a corruption, mean over the fifteen, on two CPU cores


@result_type("robustness")
class CorruptedMetrics(Result):
    """Every metric of `Calibration` under each condition; one row per condition and metric."""

    corruption: Texts = column(
        "Corruption", "", "name of the corruption; 'clean' for images without one"
    )
    severity: np.ndarray = column("Severity", "", "1 (mild) to 5 (severe); 0 for clean images")
    metric: Texts = column("Metric", "", "name of the metric, as in the calibration")
    cutoff: np.ndarray = column(
        "Cut-off", "", "of the confidence; NaN for metrics without a cut-off"
    )
    value: Estimated = estimate("Value", "", "value of the metric")
    change: Estimated = estimate(
        "Change", "", "of accuracy and NLL from clean images, paired by image; otherwise NaN"
    )
    mean_accuracy: Number = estimate(
        "mean accuracy on corrupted images", "%", "over corruptions and severities", **_ASKED
    )
    mean_drop: Number = estimate(
        "mean accuracy drop from clean images",
        POINTS,
        "over corruptions and severities",
        **_ASKED,
    )
    classes: int = scalar("Classes", "", "number of classes of the model", default=0)

    def has_figure(self, **options: Any) -> bool:
        """Whether there are several severities; one is a bar of `CorruptionErrors`."""
        return len(np.unique(self.severity[self.corruption != CLEAN[0]])) > 1

    def of(self, metric: str, corruption: str, severity: int) -> Number:
        """The value of a metric without a cut-off: ``result.of("ece", "fog", 3)``."""
        at = (self.corruption == corruption) & (self.severity == severity)
        (rows,) = np.nonzero(at & (self.metric == metric) & np.isnan(self.cutoff))
        if len(rows) != 1:
            raise InputError(
                f"metric, corruption and severity must have been measured, got {metric!r} of "
                f"{corruption!r} at severity {severity}"
            )
        return self.value[int(rows[0])]

    def sentences(self) -> Iterator[str | Finding]:
        """Mean accuracy with its paired drop, the largest drop, and the ECE."""
        rows = self.select(np.isnan(self.cutoff) & (self.corruption != CLEAN[0]))
        accuracy = rows.select(rows.metric == "accuracy")
        if not len(accuracy):
            return
        corruptions = len(set(accuracy.corruption.tolist()))
        scope = (
            f"{len(accuracy)} conditions of {number_of(corruptions, 'corruption')} at "
            f"{_severities(accuracy.severity)}"
        )
        origin, drop = self.provenance, self.mean_drop
        images = self.images_text
        mean_accuracy = text_of(self.mean_accuracy, ".1%")
        text = f"mean accuracy on corrupted images {mean_accuracy} over {scope} ({images})"
        if not np.isnan(drop):
            text += f"; paired drop from clean images {points_text(drop, drop.low, drop.high)}"
        clean = self.select((self.metric == "accuracy") & (self.corruption == CLEAN[0]))
        yield text
        yield from self._worst(accuracy)
        for value in clean.value[:1].tolist():
            yield from chance_findings(value, origin.images, self.classes, origin.split)
        yield self._calibration(rows)

    def answers(self) -> tuple[Answer, ...]:
        """Mean accuracy on corrupted images, and its drop from clean images."""
        return tuple(answer for answer in super().answers() if np.isfinite(answer.value))

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
            mce=Number(counted.mean() if errors_of and len(counted) == len(errors_of) else nan),
            severities=", ".join(map(str, sorted({*rows.severity.tolist()} - {0}))),
            comparable=bool(errors_of),
            provenance=self.provenance,
        )

    def _worst(self, accuracy: "CorruptedMetrics") -> Iterator[str]:
        """The condition with the lowest accuracy, which is a selected extreme."""
        if len(accuracy) > 1 and not np.ptp(accuracy.value):
            return
        worst = int(accuracy.value.argmin())
        change = accuracy.change[worst]
        drop = (
            f", paired drop {points_text(0.0 - change, 0.0 - change.high, 0.0 - change.low)}"
            if np.isfinite(change)
            else ""
        )
        yield (
            f"lowest accuracy of {number_of(len(accuracy), 'condition')}: "
            f"{readable(accuracy.corruption[worst])} at severity {accuracy.severity[worst]}, "
            f"{text_of(accuracy.value[worst], '.1%')}{drop}"
        )

    def _calibration(self, rows: "CorruptedMetrics") -> str:
        ece = rows.value[rows.metric == "debiased_ece"]
        clean = self.value[(self.metric == "debiased_ece") & (self.corruption == CLEAN[0])]
        uncorrupted = f", {clean[0]:.1%} on the same images uncorrupted" if len(clean) else ""
        return f"mean debiased ECE on corrupted images {ece.mean():.1%}{uncorrupted}"


@result_type("corruption-errors")
class CorruptionErrors(Result):
    """Error rate of each corruption, mean over its severities; one row per corruption."""

    corruption: Texts = column("Corruption", "", "name of the corruption")
    error: np.ndarray = column("Error rate", "", "mean over severities")
    ece: np.ndarray = column("ECE", "", "mean over severities")
    reference: np.ndarray = column(
        "Reference",
        "",
        "error rate of AlexNet or of a given reference; NaN where there is none",
    )
    relative: np.ndarray = column(
        "CE", "", "error over the reference's error; NaN unless all severities were measured"
    )
    clean_error: float = scalar("Clean error rate", "", "of clean images", default=nan)
    mean_error: float = scalar("Mean error rate", "", "mean over corruptions", default=nan)
    mce: Number = estimate(
        "mCE",
        "%",
        "mean CE; NaN unless all corruptions of the reference were measured",
        question=questions.CORRUPTIONS,
        comparison="none",
        default=nan,
    )
    severities: str = scalar("Severities", "", "that were measured", default="")
    comparable: bool = scalar("Comparable", "", "whether the reference applies", default=True)

    def sentences(self) -> Iterator[str | Finding]:
        """Mean error with its severities, the mCE or why there is none, and the worst."""
        clean = f", {self.clean_error:.1%} on the same images uncorrupted"
        clean = "" if np.isnan(self.clean_error) else clean
        plural = "y" if self.severities.isdigit() else "ies"
        severities = f" at severit{plural} {self.severities}" if self.severities else ""
        worst = int(self.error.argmax())
        origin = self.provenance
        images = f" ({images_text(origin.images, origin.split)})" if origin.images else ""
        yield (
            f"mean error rate {self.mean_error:.1%} over {number_of(len(self), 'corruption')}"
            f"{severities}{clean}{images}"
        )
        yield (
            f"highest of {len(self)}: {readable(self.corruption[worst])}, "
            f"{self.error[worst]:.1%}"
        )
        if np.isfinite(self.mce):
            yield f"mCE {self.mce:.1%} relative to the reference errors"
        elif not self.comparable:
            yield "mCE not given: AlexNet's errors are for 224x224 pixels and 1000 classes"

    def answers(self) -> tuple[Answer, ...]:
        """Mean corruption error, where it is defined."""
        return () if np.isnan(self.mce) else super().answers()


def _mean(rows: CorruptedMetrics, metric: str) -> float:
    """Mean over severities."""
    return float(rows.value[rows.metric == metric].mean())


def _severities(values: np.ndarray) -> str:
    """The severities that were measured: ``severity 3``, ``severities 1, 3, 5``."""
    levels = sorted(set(values.tolist()))
    return f"severit{'y' if len(levels) == 1 else 'ies'} {', '.join(map(str, levels))}"


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
            CorruptedMetrics,
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
        result = robustness(subject.model, batches, bins=self.bins, run=run)
        return result, result.corruption_errors()

    def cost(self, subject: Subject) -> Cost:
        """One pass per condition, and the time to corrupt the images."""
        conditions = len(self.corruptions) * len(self.severities)
        size = (32, 32) if subject.preprocessing is None else subject.preprocessing.size
        pixels = size[0] * size[1]
        return Cost(
            per_image=1.0 + conditions,
            seconds_per_image=conditions * pixels * _SECONDS_PER_PIXEL,
        )

    def inapplicable(self, subject: Subject) -> str | None:
        """Also where images are not RGB, or too small."""
        return super().inapplicable(subject) or not_corruptible(subject)


def not_corruptible(subject: Subject) -> str | None:
    """Why images of this shape cannot be corrupted; None if they can."""
    images = torch.empty((1, *subject.anatomy.image_shape), dtype=torch.uint8)
    return reason_of_error(check_images, images)


Condition = tuple[str, int]  # a corruption and its severity


def robustness(
    model: nn.Module | Sequence[nn.Module],
    corrupted: Mapping[Condition, Iterable[Batch] | Predictions],
    *,
    bins: int = 10,
    run: Run = DEFAULT_RUN,
) -> CorruptedMetrics:
    """Accuracy and every metric of `calibration` for each corruption and severity.

    Changes from clean images are paired by image, and means over conditions are computed for
    each image first: both need the same images in the same order under all conditions, and
    are NaN otherwise. Costs a pass of the model for each condition.

    Args:
        model: in evaluation mode; or several, an ensemble.
        corrupted: labeled batches of each (corruption, severity), or the predictions of them;
            `CLEAN` is the condition of clean images.
        bins: of the calibration errors.
        run: device, precision and progress.

    Source: Hendrycks and Dietterich (2019), sec. 4.
    """
    if not corrupted:
        raise InputError("corrupted must hold at least one condition, got none")
    silent = replace(run, progress=None)
    by_condition: dict[Condition, Outcomes] = {}
    for condition in run.track(list(corrupted), "conditions"):
        batches = corrupted[condition]
        if not isinstance(batches, Predictions):
            batches = predict(model, batches, run=silent)
        by_condition[condition] = outcomes(batches)
    clean = by_condition.get(CLEAN)
    parts = [
        _rows(condition, result, clean, bins) for condition, result in by_condition.items()
    ]
    last = next(reversed(by_condition.values()))
    provenance = replace(last.provenance, seed=run.seed)
    values = Estimated(
        np.concatenate([part["value"] for part in parts]),
        np.concatenate([part["value"].low for part in parts]),
        np.concatenate([part["value"].high for part in parts]),
    )
    change, low, high = np.concatenate([part["change"] for part in parts], axis=1)
    means: dict[str, Any] = _means(by_condition)
    names = ("corruption", "severity", "metric", "cutoff")
    columns: dict[str, Any] = {n: np.concatenate([part[n] for part in parts]) for n in names}
    return CorruptedMetrics(
        **columns,
        **means,
        value=values,
        change=Estimated(change, low, high),
        classes=last.classes,
        provenance=provenance,
    )


def _rows(
    condition: Condition, result: Outcomes, clean: Outcomes | None, bins: int
) -> dict[str, Any]:
    """The rows of one condition, as columns."""
    metrics = calibration(result, bins=bins)
    changes = np.full((3, len(metrics)), nan)
    if clean is not None and condition != CLEAN and _same_images([clean, result]):
        gains = result.correct.astype(np.float64) - clean.correct
        for name, change in (
            ("accuracy", mean(gains, paired_proportion)),
            ("nll", mean(result.nll - clean.nll, skewed)),
        ):
            changes[:, metrics.metric == name] = np.array(
                [[change], [change.low], [change.high]]
            )
    return {
        "corruption": np.full(len(metrics), condition[0]),
        "severity": np.full(len(metrics), condition[1]),
        "metric": metrics.metric,
        "cutoff": metrics.cutoff,
        "value": metrics.value,
        "change": changes,
    }


def _means(by_condition: Mapping[Condition, Outcomes]) -> dict[str, Number]:
    """Means over the corrupted conditions, from their mean for each image."""
    corrupted = [result for key, result in by_condition.items() if key != CLEAN]
    if not corrupted or not _same_images(corrupted):
        return {}
    correct = np.mean([result.correct for result in corrupted], axis=0)
    binary = np.isin(correct, (0.0, 1.0)).all()
    means = {"mean_accuracy": mean(correct, proportion if binary else within_one)}
    clean = by_condition.get(CLEAN)
    if clean is not None and _same_images([clean, *corrupted]):
        drop = clean.correct.astype(np.float64) - correct
        means["mean_drop"] = mean(drop, paired_proportion if binary else skewed)
    return means


def _same_images(results: Sequence[Outcomes]) -> bool:
    """Whether all have the same targets in the same order."""
    return all(np.array_equal(result.target, results[0].target) for result in results)


@figure(width=2.9, height=3.3, key=error_rate_bar, key_width=0.7, share=False)
def _(result: CorruptedMetrics, ax: Axes) -> Axes:
    """Error rate of each corruption and severity, in percent."""
    rows = result.select(result.metric == "accuracy")
    names = list(dict.fromkeys(rows.corruption.tolist()))
    severities = sorted({*rows.severity[rows.corruption != CLEAN[0]].tolist()} or {0})
    for name, severity, accuracy in zip(
        rows.corruption.tolist(), rows.severity.tolist(), rows.value.tolist(), strict=True
    ):
        clean, error = name == CLEAN[0], 1 - accuracy
        first = 0 if clean else severities.index(severity)
        place = first, len(names) - 1 - names.index(name)
        wide = len(severities) if clean else 1
        cell = Rectangle(place, wide, 1, facecolor=SIMILARITY(UNIT(error)), edgecolor="white")
        cell.set_gid(tip(f"{titled(name)} · severity {severity} · error rate {error:.1%}"))
        ax.add_patch(cell)
        ax.text(
            place[0] + wide / 2,
            place[1] + 0.5,
            percent(error),
            ha="center",
            va="center",
            fontsize=6,
            color="white" if error < _WHITE_BELOW else "black",
        )
    ax.set_yticks(np.arange(len(names)) + 0.5, [titled(name) for name in names[::-1]])
    ax.set_xticks(np.arange(len(severities)) + 0.5, [str(s) for s in severities])
    ax.set(xlim=(0, len(severities)), ylim=(0, len(names)), xlabel="Severity")
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return ax


@figure(width=2.9, height=2.9, share=False)
def _(result: CorruptionErrors, ax: Axes) -> Axes:
    """Error rates of each corruption, of clean images and of the reference."""
    place = np.arange(len(result))[::-1]
    bars = ax.barh(place, result.error, height=0.72, color=KIND_COLORS["conv"])
    for bar, name, error in zip(
        bars, result.corruption.tolist(), result.error.tolist(), strict=True
    ):
        bar.set_gid(tip(f"{titled(name)} · error rate {error:.1%}"))
    if np.isfinite(result.reference).any():
        ax.plot(
            result.reference, place, linestyle="none", marker="|", markersize=8, color=INK,
            markeredgewidth=1.2, label="reference",
        )  # fmt: skip
    if np.isfinite(result.clean_error):
        ax.axvline(result.clean_error, color=FAINT, linewidth=0.9, linestyle=(0, (3, 2)))
    _named(ax, result.corruption, place)
    ax.set_xlabel("Error rate (dashed: clean images)")
    return ax


def _named(ax: Axes, names: np.ndarray, place: np.ndarray) -> None:
    ax.set_yticks(place, [titled(name) for name in names.tolist()])
    ax.tick_params(axis="y", length=0)
    ax.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    ax.set_xlim(0, 1)


def percent(fraction: float) -> str:
    """A fraction in whole percent; 0 and 100 are exactly none and all.

    Example:
        >>> percent(0.125), percent(1 - 0.995), percent(0.999), percent(1.0)
        ('13', '1', '>99', '100')
    """
    hundred = round(100 * fraction, 9)  # 1 - 0.875 and 0.125 alike
    if 0 < hundred < 0.5:
        return "<1"
    if 99.5 <= hundred < 100:
        return ">99"
    return str(int(hundred + 0.5))
