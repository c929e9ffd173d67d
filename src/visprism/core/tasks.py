"""Tasks: what the outputs of a model mean, so that each image has an outcome and a loss.

Every analysis that needs a number and a loss for each image takes them from the task of the
run: ablation, corruptions, noise, quantization, landscapes and Hessians. A task is a frozen
dataclass with two functions, registered by `task`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar, dataclass_transform

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from visprism.core.errors import InputError
from visprism.core.registry import Registry

IGNORED = 255  # the value of a mask where there is no class
_NEAR = (2, 8)  # pixels from a boundary between classes: near, middle, far beyond
_BINS = 10  # of the confidence
Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Summary:
    """One number about all images: a mean of values by image, or a statistic of several."""

    label: str
    unit: str  # "%" for fractions
    values: tuple[str, ...]  # names of values by image
    statistic: Callable[..., float] | None = None  # of these arrays; None: the mean
    note: str = ""


@dataclass(frozen=True)
class Task:
    """What outputs and targets mean. A subclass defines `outcome` and `loss`.

    Class attributes:
        name: as `task=` and `--task` take it.
        outcome_name: what the mean outcome is called; 1 is a perfect model.
        loss_name: what the mean loss is called.
        single_class: whether outputs are logits of classes, and targets classes of images.
        dense: whether outputs are maps, which are not kept.
    """

    name: ClassVar[str] = ""
    outcome_name: ClassVar[str] = "accuracy"
    loss_name: ClassVar[str] = "NLL"
    single_class: ClassVar[bool] = False
    dense: ClassVar[bool] = False

    why: str = field(default="", kw_only=True)  # what states it

    def outcome(self, outputs: Tensor, targets: Tensor) -> Float[Tensor, " b"]:
        """A number for each image: 1 for a perfect output, higher is better."""
        raise NotImplementedError

    def loss(self, outputs: Tensor, targets: Tensor) -> Float[Tensor, " b"]:
        """A differentiable loss for each image."""
        raise NotImplementedError

    def targets(self, targets: Tensor, outputs: Tensor) -> Tensor:
        """Targets as `outcome` takes them; raises `InputError` where they do not fit."""
        return targets

    def fitted(self, targets: Tensor) -> "Task":
        """The task with what it takes from all targets, such as their spread."""
        return self

    def values(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Further values of each image, for `summaries`."""
        return {}

    def summaries(self) -> Sequence[Summary]:
        """What is reported about all images, the main number first."""
        return (
            Summary(self.outcome_name, "%", ("outcome",)),
            Summary(self.loss_name, "", ("loss",)),
        )

    def words(self, text: str) -> str:
        """A text about accuracy in the words of this task."""
        for word, name in (("accuracy", self.outcome_name), ("NLL", self.loss_name)):
            if word not in name:
                text = text.replace(word, name).replace(word.capitalize(), name)
        return text.replace("nats", "") if "NLL" not in self.loss_name else text


TASKS = Registry("task", "visprism.core.tasks")
T = TypeVar("T", bound=type[Task])


@dataclass_transform(frozen_default=True)
def task(cls: T) -> T:
    """Register a task under its name, as a frozen dataclass."""
    TASKS.add(cls.name, dataclass(frozen=True)(cls))
    return cls


@task
class Classification(Task):
    """One class for each image; outputs are logits of a softmax."""

    name = "classification"
    single_class = True

    def outcome(self, outputs: Tensor, targets: Tensor) -> Float[Tensor, " b"]:
        """1 where the class with the largest logit is the target."""
        return (outputs.argmax(1) == targets).double()

    def loss(self, outputs: Tensor, targets: Tensor) -> Float[Tensor, " b"]:
        """-log softmax of the target, in nats."""
        return functional.cross_entropy(outputs, targets, reduction="none")


@task
class Retrieval(Classification):
    """The class of the nearest text or prototype; outputs are scaled cosines."""

    name = "retrieval"


@task
class Multilabel(Task):
    """Labels that do not exclude each other; targets (K,) of 0, 1, or NaN for unknown."""

    name = "multilabel"
    outcome_name = "label accuracy"
    loss_name = "binary NLL"

    probabilities: bool = False  # whether outputs are probabilities of labels, not logits

    def _logits(self, outputs: Tensor) -> Tensor:
        if not self.probabilities:
            return outputs
        tiny = torch.finfo(outputs.dtype).eps
        return torch.logit(outputs.clamp(tiny, 1 - tiny))

    def outcome(self, outputs: Tensor, targets: Tensor) -> Float[Tensor, " b"]:
        """Fraction of known labels that are correct at a probability of 0.5."""
        correct = ((self._logits(outputs) > 0) == (targets > 0.5)).to(outputs.dtype)
        return torch.where(targets.isnan(), torch.nan, correct).nanmean(1)

    def loss(self, outputs: Tensor, targets: Tensor) -> Float[Tensor, " b"]:
        """Mean over known labels of -log p of what is so, in nats."""
        known = ~targets.isnan()
        each = functional.binary_cross_entropy_with_logits(
            self._logits(outputs), targets.nan_to_num(0).to(outputs.dtype), reduction="none"
        )
        return (each * known).sum(1) / known.sum(1).clamp(min=1)

    def targets(self, targets: Tensor, outputs: Tensor) -> Tensor:
        """Labels (n, K) as numbers; classes become one label each."""
        number = outputs.shape[1]
        if targets.ndim == 1 and number > 1:
            _check_classes(targets, number)
            return functional.one_hot(targets.long(), number).float()
        labels = targets.reshape(len(targets), -1).float()
        if labels.shape[1] != number:
            raise InputError(
                f"the model has {number} labels, the targets have {labels.shape[1]}"
            )
        if not ((labels == 0) | (labels == 1) | labels.isnan()).all():
            raise InputError("targets of labels must be 0, 1 or NaN for unknown")
        return labels

    def values(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Probabilities and labels."""
        return {"probability": self._logits(outputs.double()).sigmoid(), "label": targets}

    def summaries(self) -> Sequence[Summary]:
        """Label accuracy, binary NLL, mean average precision, ECE by label, worst label."""
        pair = ("probability", "label")
        return (
            *super().summaries(),
            Summary("mean average precision", "%", pair, mean_average_precision),
            Summary("macro ECE over labels", "%", pair, _label_ece),
            Summary("lowest label accuracy", "%", pair, _worst_label, "of a selected label"),
        )


@task
class Regression(Task):
    """Numbers (D,) for each image, in the unit of the targets."""

    name = "regression"
    outcome_name = "D²"
    loss_name = "squared error"

    center: tuple[float, ...] = ()  # median of each target
    spread: tuple[float, ...] = ()  # mean absolute deviation from the median

    def outcome(self, outputs: Tensor, targets: Tensor) -> Float[Tensor, " b"]:
        """1 - |error| / mean |target - median|, the mean over D; its mean is D².

        Source: scikit-learn's `d2_absolute_error_score`.
        """
        spread = torch.tensor(self.spread or (1.0,), dtype=outputs.dtype, device=outputs.device)
        return (1 - (outputs - targets).abs() / spread).mean(1)

    def loss(self, outputs: Tensor, targets: Tensor) -> Float[Tensor, " b"]:
        """Squared error, the mean over D."""
        return (outputs - targets.to(outputs.dtype)).square().mean(1)

    def targets(self, targets: Tensor, outputs: Tensor) -> Tensor:
        """Targets (n, D) as numbers."""
        numbers = targets.reshape(len(targets), -1).float()
        if numbers.shape[1] != outputs.shape[1]:
            raise InputError(
                f"the model returns {outputs.shape[1]} numbers for each image, and the targets "
                f"have {numbers.shape[1]}"
            )
        if not numbers.isfinite().all():
            raise InputError("targets of a regression must be finite")
        return numbers

    def fitted(self, targets: Tensor) -> Task:
        """With the median and the mean absolute deviation of these targets."""
        center = torch.quantile(targets.double(), 0.5, dim=0)
        spread = (targets.double() - center).abs().mean(0)
        if not (spread > 0).all():
            raise InputError("targets of a regression must differ, and all are equal")
        return replace(self, center=tuple(center.tolist()), spread=tuple(spread.tolist()))

    def values(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Absolute error, error and target."""
        error = outputs.double() - targets.double()
        return {
            "absolute error": error.abs().mean(1),
            "error": error.mean(1),
            "errors": error,
            "target": targets,
        }

    def summaries(self) -> Sequence[Summary]:
        """D², squared error, absolute error, its median, bias and R²."""
        return (
            *super().summaries(),
            Summary("mean absolute error", "", ("absolute error",), note="unit of the target"),
            Summary("median absolute error", "", ("absolute error",), _median),
            Summary("bias (prediction - target)", "", ("error",), note="unit of the target"),
            Summary("R²", "%", ("errors", "target"), _r_squared),
        )


@task
class Segmentation(Task):
    """A class for each pixel; targets (H, W), 255 and negative values are ignored."""

    name = "segmentation"
    outcome_name = "pixel accuracy"
    loss_name = "pixel NLL"
    dense = True

    def _logits(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if outputs.shape[-2:] == targets.shape[-2:]:
            return outputs
        return functional.interpolate(outputs, size=targets.shape[-2:], mode="bilinear")

    def outcome(self, outputs: Tensor, targets: Tensor) -> Float[Tensor, " b"]:
        """Fraction of pixels whose class with the largest logit is the target."""
        known = _known(targets).flatten(1)
        correct = (self._logits(outputs, targets).argmax(1) == targets).flatten(1) & known
        return correct.sum(1).double() / known.sum(1)

    def loss(self, outputs: Tensor, targets: Tensor) -> Float[Tensor, " b"]:
        """Mean over pixels of -log softmax of the target, in nats."""
        known = _known(targets)
        each = functional.cross_entropy(
            self._logits(outputs, targets), targets.where(known, 0).long(), reduction="none"
        )
        return (each * known).flatten(1).sum(1) / known.flatten(1).sum(1).clamp(min=1)

    def targets(self, targets: Tensor, outputs: Tensor) -> Tensor:
        """Masks as integers, within the classes of the model."""
        masks = targets.squeeze(1) if targets.ndim == 4 else targets
        if outputs.ndim != 4 or masks.ndim != 3:
            raise InputError(
                "segmentation needs outputs (B, K, H, W) and masks (B, H, W), got "
                f"{tuple(outputs.shape)} and {tuple(targets.shape)}"
            )
        highest = int(masks.where(_known(masks), 0).max())
        if highest >= outputs.shape[1]:
            raise InputError(
                f"classes of masks must be below {outputs.shape[1]}, the model's classes, or "
                f"{IGNORED}, got {highest}"
            )
        return masks.long()

    def values(self, outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Counts by class, by bin of the confidence, and by distance to a boundary."""
        probabilities = self._logits(outputs.float(), targets).softmax(1)
        confidence, predicted = probabilities.max(1)
        known, correct = _known(targets), predicted == targets
        classes = range(outputs.shape[1])
        target, guess = (
            torch.stack([((t == c) & known).flatten(1).sum(1) for c in classes], 1)
            for t in (targets, predicted)
        )
        both = torch.stack(
            [((targets == c) & correct & known).flatten(1).sum(1) for c in classes], 1
        )
        bins = (confidence * _BINS).ceil().clamp(1, _BINS) - 1
        binned = torch.stack(
            [
                torch.stack(
                    [((bins == b) & known & w).flatten(1).sum(1) for w in (correct, ~correct)],
                    1,
                )
                for b in range(_BINS)
            ],
            1,
        )
        sums = torch.stack(
            [(confidence * ((bins == b) & known)).flatten(1).sum(1) for b in range(_BINS)], 1
        )
        return {
            "intersection": both,
            "union": target + guess - both,
            "bins": binned,
            "confidence": sums,
            **_by_distance(targets, known, correct),
        }

    def summaries(self) -> Sequence[Summary]:
        """Pixel accuracy and NLL, mean IoU, ECE, and accuracy by distance to a boundary."""
        near, far = _NEAR
        return (
            *super().summaries(),
            Summary("mean IoU", "%", ("intersection", "union"), mean_iou),
            Summary("ECE over pixels", "%", ("bins", "confidence"), _pixel_ece),
            *(
                Summary(f"pixel accuracy, {where} a boundary", "%", (f"{n} correct", n), _ratio)
                for n, where in (
                    ("near", f"at most {near} pixels from"),
                    ("middle", f"{near + 1} to {far} pixels from"),
                    ("beyond", f"more than {far} pixels from"),
                )
            ),
        )


def _known(targets: Tensor) -> Tensor:
    return (targets >= 0) & (targets != IGNORED)


def _by_distance(targets: Tensor, known: Tensor, correct: Tensor) -> dict[str, Tensor]:
    """Correct and all pixels near to, at a middle distance from, and beyond a boundary."""
    labels = targets.float()[:, None]
    pools = [functional.max_pool2d(sign * labels, 3, 1, 1) for sign in (1, -1)]
    edge = (pools[0] + pools[1] > 0).float()  # maximum above minimum of the neighbors
    grown = [functional.max_pool2d(edge, 2 * d - 1, 1, d - 1)[:, 0] > 0 for d in _NEAR]
    parts = {"near": grown[0], "middle": grown[1] & ~grown[0], "beyond": ~grown[1]}
    counts = {n: (part & known).flatten(1).sum(1) for n, part in parts.items()}
    hits = {f"{n} correct": (p & known & correct).flatten(1).sum(1) for n, p in parts.items()}
    return counts | hits


def _check_classes(targets: Tensor, number: int) -> None:
    low, high = int(targets.min()), int(targets.max())
    if low < 0 or high >= number:
        raise InputError(
            f"targets must be between 0 and {number - 1}, the classes of the model, got "
            f"{low if low < 0 else high}"
        )


# Statistics of all images, from values by image.


def mean_average_precision(probability: np.ndarray, label: np.ndarray) -> float:
    """Mean over labels with a positive image of the average precision.

    AP = sum over thresholds of (R_n - R_(n-1)) P_n; images of equal probability share one.
    """
    precisions = []
    for p, y in zip(probability.T, label.T, strict=True):
        known = ~np.isnan(y)
        p, y = p[known], y[known]
        if y.sum() == 0:
            continue
        order = np.argsort(-p, kind="stable")
        hits = np.cumsum(y[order])
        last = np.append(np.diff(p[order]) != 0, True)  # of equal probabilities
        recall = hits[last] / y.sum()
        precision = hits[last] / (np.flatnonzero(last) + 1)
        precisions.append(float((np.diff(recall, prepend=0) * precision).sum()))
    return float(np.mean(precisions)) if precisions else float("nan")


def _label_ece(probability: np.ndarray, label: np.ndarray) -> float:
    errors = []
    for p, y in zip(probability.T, label.T, strict=True):
        known = ~np.isnan(y)
        p, y = p[known], y[known]
        place = np.clip(np.ceil(p * _BINS).astype(int), 1, _BINS) - 1
        gaps = np.bincount(place, p - y, minlength=_BINS)
        errors.append(np.abs(gaps).sum() / max(len(p), 1))
    return float(np.mean(errors))


def _worst_label(probability: np.ndarray, label: np.ndarray) -> float:
    correct = np.where(np.isnan(label), np.nan, (probability > 0.5) == (label > 0.5))
    return float(np.nanmin(np.nanmean(correct, axis=0)))


def _median(values: np.ndarray) -> float:
    return float(np.median(values))


def _r_squared(errors: np.ndarray, target: np.ndarray) -> float:
    spread = ((target - target.mean(0)) ** 2).sum(0)
    return float((1 - (errors**2).sum(0) / spread).mean())


def mean_iou(intersection: np.ndarray, union: np.ndarray) -> float:
    """Mean over classes of summed intersections over summed unions, without empty classes."""
    both, either = intersection.sum(0), union.sum(0)
    return float((both[either > 0] / either[either > 0]).mean())


def _pixel_ece(bins: np.ndarray, confidence: np.ndarray) -> float:
    correct, wrong = bins.sum(0).T
    return float(np.abs(correct - confidence.sum(0)).sum() / (correct + wrong).sum())


def _ratio(part: np.ndarray, whole: np.ndarray) -> float:
    return float(part.sum() / whole.sum()) if whole.sum() else float("nan")


CLASSIFICATION = Classification()


def words_of(name: str) -> Callable[[str], str]:
    """A function that puts texts on accuracy and NLL into the words of a task."""
    if name == CLASSIFICATION.name or name not in TASKS:
        return str
    return TASKS[name]().words


def task_named(given: Any) -> Task | None:
    """The task that a user passes, by name or as it is; None leaves it to the data."""
    if given is None or isinstance(given, Task):
        return given
    return TASKS[str(given)](why="as given")
