"""Corruptions: accuracy and calibration on corrupted images, and the mCE.

Source: Hendrycks and Dietterich (2019), Benchmarking neural network robustness to common
corruptions and perturbations.
"""

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

from visprism import kit
from visprism.drawing import color_bars, style
from visprism.estimates import corruption_error, text
from visprism.estimates.answers import mean_loss
from visprism.estimates.calibration_error import calibration_error
from visprism.estimates.estimated import stacked
from visprism.estimates.findings import chance_findings
from visprism.images.corruptions.corrupt import COMMON, change_of, check_images
from visprism.passes.batches import Batch
from visprism.passes.conditions import outcomes_under
from visprism.passes.predictions import Predictions

CLEAN: corruption_error.Condition = (
    "clean",
    0,
)  # the condition of images that are not corrupted
_ASKED: dict[str, Any] = {
    "asks": "How robust is the model to corruptions?",
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


@kit.result("robustness", "Error rate on corrupted images", table=False)
class CorruptedMetrics(kit.Result):
    """Accuracy, NLL and calibration error under each condition; one row per condition.

    Each cell is a corruption at a severity: the percentage of images that are classified
    incorrectly. The same images are used everywhere.
    """

    corruption: kit.Texts = kit.column("Corruption", "", "'clean' for images without one")
    severity: np.ndarray = kit.column("Severity", "", "1 (mild) to 5 (severe); 0 if clean")
    accuracy: kit.Estimated = kit.estimate(
        "Accuracy", "", reduce=kit.Reduce.PROPORTION.of("correct")
    )
    change: kit.Estimated = kit.estimate(
        "Change of accuracy",
        "",
        "from clean images, paired by image; NaN without them",
        reduce=kit.Reduce.PAIRED,
    )
    nll: kit.Estimated = kit.estimate(
        "NLL", "nats", reduce=kit.Reduce.by_row(mean_loss, "nll", "correct")
    )
    nll_change: kit.Estimated = kit.estimate(
        "Change of NLL",
        "nats",
        "from clean images, paired by image; NaN without them",
        reduce=kit.Reduce.SKEWED,
    )
    ece: np.ndarray = kit.column("ECE", "", "expected calibration error")
    debiased_ece: kit.Estimated = kit.estimate(
        "Debiased ECE", "", "without the bias of few images"
    )
    mean_accuracy: kit.Number = kit.estimate(
        "mean accuracy on corrupted images",
        "%",
        "over corruptions and severities",
        better="higher",
        reduce=kit.Reduce.CORRECT,
        **_ASKED,
    )
    mean_drop: kit.Number = kit.estimate(
        "mean accuracy drop from clean images",
        kit.POINTS,
        "over corruptions and severities",
        reduce=kit.Reduce.DROP,
        **_ASKED,
    )
    classes: int = kit.scalar("Classes", "", "number of classes of the model", default=0)

    def has_figure(self, **options: Any) -> bool:
        """Whether there are several severities; one is a bar of `CorruptionErrors`."""
        return len(np.unique(self.severity[self.corruption != CLEAN[0]])) > 1

    def sentences(self) -> Iterator[str | kit.Finding]:
        """The answers, the lowest accuracy, and an accuracy at chance level."""
        yield from super().sentences()
        corrupted = self.select(self.corruption != CLEAN[0])
        if len(corrupted):
            worst = int(corrupted.accuracy.argmin())
            yield (
                f"lowest accuracy of {text.number_of(len(corrupted), 'condition')}: "
                f"{text.readable(corrupted.corruption[worst])} at severity "
                f"{corrupted.severity[worst]}, {corrupted.accuracy[worst].text('.1%')} over "
                f"{self.images_text}"
            )
        for value in self.accuracy[self.corruption == CLEAN[0]].tolist():
            yield from chance_findings(value, self.provenance, self.classes)

    def answers(self) -> tuple[Any, ...]:
        """Mean accuracy on corrupted images, and its drop from clean images."""
        return tuple(answer for answer in super().answers() if np.isfinite(answer.value))

    def corruption_errors(
        self, *, reference: Mapping[str, float] | None = None
    ) -> "CorruptionErrors":
        """The error of each corruption, and the mCE where a reference applies.

        Without a reference, as for CIFAR-10-C, papers report the mean over corruptions.

        Args:
            reference: mean error of a reference model over five severities, by corruption. By
                default AlexNet's for 224x224 pixels and 1000 classes, for which it was
                measured, and none otherwise.
        """
        corrupted = self.corruption != CLEAN[0]
        names = list(dict.fromkeys(self.corruption[corrupted].tolist()))
        if not names:
            raise kit.InputError(
                "results must hold at least one corruption, got clean images only"
            )
        size = tuple(self.provenance.image_shape[-2:])
        applies = (*size, self.classes) == corruption_error.ALEXNET_IMAGES
        errors_of = corruption_error.ALEXNET if applies and reference is None else reference
        errors_of = errors_of or {}
        conditions = zip(self.corruption.tolist(), self.severity.tolist(), strict=True)
        errors = dict(zip(conditions, 1 - np.asarray(self.accuracy), strict=True))
        relative = corruption_error.relative_errors(errors, errors_of)
        error = np.array([1 - self.accuracy[self.corruption == n].mean() for n in names])
        return CorruptionErrors(
            corruption=np.array(names),
            error=error,
            reference=np.array([errors_of.get(name, nan) for name in names]),
            relative=np.array([relative.get(name, nan) for name in names]),
            clean_error=errors.get(CLEAN, nan),
            mean_error=float(error.mean()),
            mce=kit.Number(np.mean(list(relative.values())) if relative else nan),
            severities=", ".join(map(str, np.unique(self.severity[corrupted]))),
            comparable=bool(errors_of),
            provenance=self.provenance,
        )


@kit.result("corruption-errors", "Error rate by corruption")
class CorruptionErrors(kit.Result):
    """Error rate of each corruption, mean over its severities; one row per corruption.

    Each bar is the error rate of a corruption, mean over its severities. The dashed line is the
    error rate on clean images. At 224x224 pixels and 1000 classes, marks are the published
    error rates of AlexNet.
    """

    corruption: kit.Texts = kit.column("Corruption", "", "name of the corruption")
    error: np.ndarray = kit.column("Error rate", "", "mean over severities")
    reference: np.ndarray = kit.column(
        "Reference", "", "error rate of AlexNet or of a given reference, or NaN"
    )
    relative: np.ndarray = kit.column(
        "CE", "", "error over the reference's error; NaN unless all severities were measured"
    )
    clean_error: float = kit.scalar("Clean error rate", "", "of clean images", default=nan)
    mean_error: float = kit.scalar("Mean error rate", "", "mean over corruptions", default=nan)
    mce: kit.Number = kit.estimate(
        "mCE",
        "%",
        "mean CE; NaN unless all corruptions of the reference were measured",
        comparison="none",
        **_ASKED | {"in_pixels": False},
    )
    severities: str = kit.scalar("Severities", "", "that were measured", default="")
    comparable: bool = kit.scalar(
        "Comparable", "", "whether the reference applies", default=True
    )

    def sentences(self) -> Iterator[str | kit.Finding]:
        """Mean error with its severities, the worst, and the mCE or why there is none."""
        worst = int(self.error.argmax())
        yield (
            f"mean error rate {self.mean_error:.1%} over "
            f"{text.number_of(len(self), 'corruption')}, severities {self.severities} "
            f"({self.images_text}); highest of {len(self)}: "
            f"{text.readable(self.corruption[worst])}, {self.error[worst]:.1%}"
        )
        yield from super().sentences()
        if not self.comparable:
            yield "no mCE: AlexNet's errors are for 224x224 pixels and 1000 classes"

    def answers(self) -> tuple[Any, ...]:
        """Mean corruption error, where it is defined."""
        return () if np.isnan(self.mce) else super().answers()


@kit.analysis
class Corruptions(kit.Analysis):
    """Accuracy and calibration on corrupted images, by corruption and severity."""

    name = "corruptions"
    group = "robustness"
    images = kit.Sizes(fewest=16, quick=128, standard=512, work=1.4)
    needs = kit.Needs.OUTCOMES | kit.Needs.PIXELS | kit.Needs.OUTPUTS
    claims = ("C11",)
    source = "Hendrycks & Dietterich (2019)"
    gives = (CorruptedMetrics, CorruptionErrors)

    corruptions: tuple[Corruption, ...] = kit.option(COMMON, "names of the corruptions")
    severities: tuple[int, ...] = kit.option(
        (1, 2, 3, 4, 5),
        "severities from 1 (mild) to 5 (severe)",
        minimum=1,
        maximum=5,
        quick=(3,),
    )
    bins: int = kit.option(10, "number of bins of the confidence", minimum=1)

    def measure(self, subject: kit.Subject, run: kit.Run) -> Sequence[kit.Result]:
        """Predict the evaluation images without and with each corruption."""
        batches = {CLEAN: subject.predictions(run)} | {
            (name, severity): subject.output_batches(run, change_of(name, severity, run.seed))
            for name in self.corruptions
            for severity in self.severities
        }
        metrics = robustness(subject.model, batches, bins=self.bins, run=run)
        return metrics, metrics.corruption_errors()

    def cost(self, subject: kit.Subject) -> kit.Cost:
        """One pass per condition, and the time to corrupt the images."""
        conditions = len(self.corruptions) * len(self.severities)
        seconds = conditions * seconds_to_corrupt(subject)
        return kit.Cost(per_image=1.0 + conditions, seconds_per_image=seconds)

    def inapplicable(self, subject: kit.Subject) -> str | None:
        """Also where images are not RGB, or too small."""
        return super().inapplicable(subject) or not_corruptible(subject)


def not_corruptible(subject: kit.Subject) -> str | None:
    """Why images of this shape cannot be corrupted; None if they can."""
    images = torch.empty((1, *subject.anatomy.image_shape), dtype=torch.uint8)
    return kit.reason_of_error(check_images, images)


def seconds_to_corrupt(subject: kit.Subject) -> float:
    """Seconds that a corruption of one image takes, mean over the fifteen."""
    height, width = subject.anatomy.image_shape[-2:]
    return height * width * _SECONDS_PER_PIXEL


def robustness(
    model: nn.Module,
    corrupted: Mapping[corruption_error.Condition, Iterable[Batch] | Predictions],
    *,
    bins: int = 10,
    run: kit.Run = kit.DEFAULT_RUN,
) -> CorruptedMetrics:
    """Accuracy, NLL and calibration errors for each corruption and severity.

    Changes from clean images are paired by image, and means over conditions are computed for
    each image first. Costs a pass of the model for each condition.

    Args:
        model: in evaluation mode.
        corrupted: labeled batches of each (corruption, severity), or the predictions of them,
            of the same images in the same order; `CLEAN` is the condition of clean images.
        bins: of the calibration errors.
        run: device, precision and progress.

    Source: Hendrycks and Dietterich (2019), sec. 4.
    """
    seen = outcomes_under(model, corrupted, run=run)
    names, severities = map(np.array, zip(*seen.conditions, strict=True))
    correct, nll, is_clean = seen["correct"], seen["nll"], names == CLEAN[0]
    values = {"correct": correct, "nll": nll}
    if not is_clean.all():
        values["mean_accuracy"] = correct[:, ~is_clean].mean(1)
    if is_clean.any():
        clean = np.where(is_clean, nan, correct[:, is_clean])
        values |= {"change": correct - clean, "mean_drop": np.nanmean(clean - correct, axis=1)}
        values["nll_change"] = nll - np.where(is_clean, nan, nll[:, is_clean])
    columns = zip(seen["confidence"].T, correct.T.astype(bool), strict=True)
    errors = [calibration_error(c, right, bins=bins) for c, right in columns]
    return CorruptedMetrics.reduced(
        values,
        corruption=names,
        severity=severities,
        ece=np.array([error.value for error in errors]),
        debiased_ece=stacked([error.debiased for error in errors]),
        classes=seen.classes,
        provenance=replace(seen.provenance, seed=run.seed),
    )


@kit.figure(width=2.9, height=3.3, key=color_bars.error_rate_bar, key_width=0.7, share=False)
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
        wide, color = len(severities) if clean else 1, style.SIMILARITY(color_bars.UNIT(error))
        cell = Rectangle((left, top - 1), wide, 1, facecolor=color, edgecolor="white")
        cell.set_gid(
            style.tip(f"{text.titled(name)} · severity {severity} · error rate {error:.1%}")
        )
        ax.add_patch(cell)
        ax.text(
            left + wide / 2, top - 0.5, f"{100 * error:.0f}", ha="center", va="center",
            fontsize=6, color="white" if error < _WHITE_BELOW else "black",
        )  # fmt: skip
    ax.set_yticks(np.arange(len(names)) + 0.5, [text.titled(name) for name in names[::-1]])
    ax.set_xticks(np.arange(len(severities)) + 0.5, [str(s) for s in severities])
    ax.set(xlim=(0, len(severities)), ylim=(0, len(names)), xlabel="Severity")
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return ax


@kit.figure(width=2.9, height=2.9, share=False)
def _(result: CorruptionErrors, ax: Axes) -> Axes:
    """Error rates of each corruption, of clean images and of the reference."""
    place = np.arange(len(result))[::-1]
    bars = ax.barh(place, result.error, height=0.72, color=style.KIND_COLORS["conv"])
    for bar, name, error in zip(
        bars, result.corruption.tolist(), result.error.tolist(), strict=True
    ):
        bar.set_gid(style.tip(f"{text.titled(name)} · error rate {error:.1%}"))
    if np.isfinite(result.reference).any():
        ax.plot(
            result.reference, place, linestyle="none", marker="|", markersize=8,
            color=style.INK, markeredgewidth=1.2, label="reference",
        )  # fmt: skip
    if np.isfinite(result.clean_error):
        ax.axvline(result.clean_error, color=style.FAINT, linewidth=0.9, linestyle=(0, (3, 2)))
    ax.set_yticks(place, [text.titled(name) for name in result.corruption.tolist()])
    ax.tick_params(axis="y", length=0)
    ax.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    ax.set(xlim=(0, 1), xlabel="Error rate (dashed: clean images)")
    return ax
