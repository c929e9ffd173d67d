"""Corruptions: accuracy and calibration on corrupted images, and the mCE.

Source: Hendrycks and Dietterich (2019), Benchmarking neural network robustness to common
corruptions and perturbations.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
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
from visprism.analyses.model_on_images import Subject
from visprism.analyses.predictions.calibration import calibration
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

Condition = tuple[str, int]  # a corruption and its severity

CLEAN: Condition = ("clean", 0)  # the condition of images that are not corrupted

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
    """Accuracy, NLL and calibration error under each condition; one row per condition."""

    corruption: Texts = column(
        "Corruption", "", "name of the corruption; 'clean' for images without one"
    )
    severity: np.ndarray = column("Severity", "", "1 (mild) to 5 (severe); 0 for clean images")
    accuracy: Estimated = estimate("Accuracy", "", "fraction of correct predictions")
    change: Estimated = estimate(
        "Change of accuracy", "", "from clean images, paired by image; NaN without them"
    )
    nll: Estimated = estimate("NLL", "nats", "mean of -log probability of the target")
    nll_change: Estimated = estimate(
        "Change of NLL", "nats", "from clean images, paired by image; NaN without them"
    )
    ece: np.ndarray = column("ECE", "", "expected calibration error")
    debiased_ece: Estimated = estimate("Debiased ECE", "", "without the bias of few images")
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

    def sentences(self) -> Iterator[str | Finding]:
        """Mean accuracy with its paired drop, the largest drop, and the ECE."""
        is_clean, drop = self.corruption == CLEAN[0], self.mean_drop
        corrupted, clean = self.select(~is_clean), self.select(is_clean)
        if not len(corrupted):
            return
        accuracy, number = corrupted.accuracy, number_of(len(corrupted), "condition")
        names = set(corrupted.corruption.tolist())
        paired = (
            "" if np.isnan(drop) else f"; paired drop from clean images {points_text(drop)}"
        )
        yield (
            f"mean accuracy on corrupted images {text_of(self.mean_accuracy, '.1%')} over "
            f"{number} of {number_of(len(names), 'corruption')} at "
            f"{_severities(np.unique(corrupted.severity))} ({self.images_text}){paired}"
        )
        if len(accuracy) == 1 or np.ptp(accuracy):
            worst = int(accuracy.argmin())
            change = corrupted.change[worst]
            fall = Number(-change, -change.high, -change.low)
            yield (
                f"lowest accuracy of {number}: {readable(corrupted.corruption[worst])} at "
                f"severity {corrupted.severity[worst]}, {text_of(accuracy[worst], '.1%')}"
                f"{f', paired drop {points_text(fall)}' if np.isfinite(fall) else ''}"
            )
        for value in clean.accuracy.tolist():
            yield from chance_findings(value, self.provenance, self.classes)
        ece, of_clean = corrupted.debiased_ece.mean(), clean.debiased_ece.tolist()
        text = f", {of_clean[0]:.1%} on the same images uncorrupted" if of_clean else ""
        yield f"mean debiased ECE on corrupted images {ece:.1%}{text}"

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
        corrupted = self.corruption != CLEAN[0]
        names = list(dict.fromkeys(self.corruption[corrupted].tolist()))
        if not names:
            raise InputError("results must hold at least one corruption, got clean images only")
        size = tuple(self.provenance.image_shape[-2:])
        comparable = size == ALEXNET_SIZE and self.classes == ALEXNET_CLASSES
        errors_of = reference if reference is not None else ALEXNET if comparable else {}
        conditions = zip(self.corruption.tolist(), self.severity.tolist(), strict=True)
        errors = dict(zip(conditions, 1 - np.asarray(self.accuracy), strict=True))
        relative = relative_errors(errors, errors_of)
        by_name = [
            (
                1 - self.accuracy[self.corruption == name].mean(),
                errors_of.get(name, nan),
                relative.get(name, nan),
            )
            for name in names
        ]
        error, against, ratios = map(np.array, zip(*by_name, strict=True))
        return CorruptionErrors(
            corruption=np.array(names),
            error=error,
            reference=against,
            relative=ratios,
            clean_error=errors.get(CLEAN, nan),
            mean_error=float(error.mean()),
            mce=Number(np.mean(list(relative.values())) if relative else nan),
            severities=", ".join(map(str, np.unique(self.severity[corrupted]))),
            comparable=bool(errors_of),
            provenance=self.provenance,
        )


def relative_errors(
    errors: Mapping[Condition, float], reference: Mapping[str, float]
) -> dict[str, float]:
    """CE of each corruption of a reference, whose mean is the mCE; NaN if one is missing.

    Args:
        errors: error rate by corruption and severity.
        reference: mean error of the reference over the five severities, by corruption.
    """
    return {
        name: float(np.mean([errors.get((name, s), nan) for s in range(1, 6)])) / error
        for name, error in reference.items()
    }


def _severities(levels: Iterable[object]) -> str:
    """The severities that were measured: ``severity 3``, ``severities 1, 3, 5``."""
    text = ", ".join(map(str, levels))
    return f"severit{'ies' if ',' in text else 'y'} {text}"


@result_type("corruption-errors")
class CorruptionErrors(Result):
    """Error rate of each corruption, mean over its severities; one row per corruption."""

    corruption: Texts = column("Corruption", "", "name of the corruption")
    error: np.ndarray = column("Error rate", "", "mean over severities")
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
        worst = int(self.error.argmax())
        yield (
            f"mean error rate {self.mean_error:.1%} over {number_of(len(self), 'corruption')} "
            f"at {_severities(self.severities.split(', '))}"
            f"{'' if np.isnan(self.clean_error) else clean} ({self.images_text})"
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


@ANALYSES.register
class Corruptions(Analysis):
    """Accuracy and calibration on corrupted images, by corruption and severity."""

    name = "corruptions"
    group = "robustness"
    images = Sizes(fewest=16, quick=128, standard=512, work=1.4)
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
        seconds = conditions * seconds_to_corrupt(subject)
        return Cost(per_image=1.0 + conditions, seconds_per_image=seconds)

    def inapplicable(self, subject: Subject) -> str | None:
        """Also where images are not RGB, or too small."""
        return super().inapplicable(subject) or not_corruptible(subject)


def not_corruptible(subject: Subject) -> str | None:
    """Why images of this shape cannot be corrupted; None if they can."""
    images = torch.empty((1, *subject.anatomy.image_shape), dtype=torch.uint8)
    return reason_of_error(check_images, images)


def seconds_to_corrupt(subject: Subject) -> float:
    """Seconds that a corruption of one image takes, mean over the fifteen."""
    height, width = subject.anatomy.image_shape[-2:]
    return height * width * _SECONDS_PER_PIXEL


def robustness(
    model: nn.Module,
    corrupted: Mapping[Condition, Iterable[Batch] | Predictions],
    *,
    bins: int = 10,
    run: Run = DEFAULT_RUN,
) -> CorruptedMetrics:
    """Accuracy, NLL and calibration errors for each corruption and severity.

    Changes from clean images are paired by image, and means over conditions are computed for
    each image first: both need the same images in the same order under all conditions, and
    are NaN otherwise. Costs a pass of the model for each condition.

    Args:
        model: in evaluation mode.
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
    clean, numbers, eces = by_condition.get(CLEAN), defaultdict(list), []
    for condition, result in by_condition.items():
        change = nll_change = Number(nan)
        if clean is not None and condition != CLEAN and _same_images([clean, result]):
            gains = result.correct.astype(np.float64) - clean.correct
            change = mean(gains, paired_proportion)
            nll_change = mean(result.nll - clean.nll, skewed)
        metrics = calibration(result, bins=bins)
        for name in ("accuracy", "nll", "debiased_ece"):
            numbers[name].append(metrics.of(name))
        eces.append(float(metrics.of("ece")))
        numbers["change"].append(change)
        numbers["nll_change"].append(nll_change)
    names, severities = zip(*by_condition, strict=True)
    columns: dict[str, Any] = {
        name: Estimated(values, [n.low for n in values], [n.high for n in values])
        for name, values in numbers.items()
    }
    last = next(reversed(by_condition.values()))
    means: dict[str, Any] = _means(by_condition)
    return CorruptedMetrics(
        corruption=np.array(names),
        severity=np.array(severities),
        ece=np.array(eces),
        classes=last.classes,
        provenance=replace(last.provenance, seed=run.seed),
        **columns,
        **means,
    )


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
    names = list(dict.fromkeys(result.corruption.tolist()))
    severities = sorted({*result.severity[result.corruption != CLEAN[0]].tolist()} or {0})
    for name, severity, accuracy in zip(
        result.corruption.tolist(),
        result.severity.tolist(),
        result.accuracy.tolist(),
        strict=True,
    ):
        clean, error = name == CLEAN[0], 1 - accuracy
        left, top = 0 if clean else severities.index(severity), len(names) - names.index(name)
        wide, color = len(severities) if clean else 1, SIMILARITY(UNIT(error))
        cell = Rectangle((left, top - 1), wide, 1, facecolor=color, edgecolor="white")
        cell.set_gid(tip(f"{titled(name)} · severity {severity} · error rate {error:.1%}"))
        ax.add_patch(cell)
        ax.text(
            left + wide / 2, top - 0.5, f"{100 * error:.0f}", ha="center", va="center",
            fontsize=6, color="white" if error < _WHITE_BELOW else "black",
        )  # fmt: skip
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
    ax.set_yticks(place, [titled(name) for name in result.corruption.tolist()])
    ax.tick_params(axis="y", length=0)
    ax.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    ax.set(xlim=(0, 1), xlabel="Error rate (dashed: clean images)")
    return ax
