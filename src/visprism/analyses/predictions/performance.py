"""Performance: how well a model does its task, in the metrics of the task.

Each metric is a mean of values by image, or a statistic of them such as the mean IoU, whose
interval is a jackknife's over images, or over 100 groups of them.

Source: Efron and Tibshirani (1993), An introduction to the bootstrap, ch. 11; Brodersen et al.
(2010), The balanced accuracy and its posterior distribution.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from visprism import kit
from visprism.core.statistics import t_quantile, wilson
from visprism.core.tasks import Summary, Task
from visprism.estimates.estimated import jackknife, proportion, skewed, stacked, student
from visprism.passes.batches import in_order, labeled
from visprism.passes.forward_passes import inference
from visprism.passes.outcomes import Outcomes, outcomes

_GROUPS = 100  # of images, for a jackknife
_RELABELED = 0.25  # accuracy that another order of the outputs must gain to be reported
BALANCED, WORST, WITHIN = (
    "balanced accuracy",
    "worst class",
    "accuracy among the data's classes",
)


@kit.result("task-metrics", "Performance", figures={})
class TaskMetrics(kit.Result):
    """How well the model does its task; one row for each metric.

    The metrics of the task with 95% intervals over images. The balanced accuracy is the mean
    accuracy of the classes. A worst class or label is selected, so that it is likely to be
    better on new images.
    """

    row_names = ("metric",)

    metric: kit.Texts = kit.column("Metric")
    unit: kit.Texts = kit.column("Unit", "", "% for fractions")
    of: kit.Texts = kit.column("About", "", "class or unit that the number is about")
    value: kit.Estimated = kit.estimate(
        "value", "", asks="How well does the model do its task?", better="higher"
    )
    selected: np.ndarray = kit.column(
        "Selected", "", "number of values of which it is the worst"
    )
    note: str = kit.scalar("Note", "", "on the order of the outputs", default="")

    def answered(self, name: str) -> np.ndarray:
        """The main metric; the others are in the table."""
        return np.array([0])

    def reading(self, name: str, row: int) -> dict[str, Any]:
        """Name and unit of the metric, and the class that it is about."""
        about = f" ({self.of[row]})" if self.of[row] else ""
        return {
            "quantity": f"{self.metric[row]}{about}",
            "unit": str(self.unit[row]),
            "measure": "",
            "reading": str(self.of[row]) or " ",
            "comparison": "none" if self.selected[row] > 1 else "combined",
        }

    def sentences(self) -> Any:
        """Each metric with its interval, and whether another order of outputs fits better."""
        for row in range(len(self)):
            number = self.value[row]
            scale, unit = (100, "%") if self.unit[row] == "%" else (1, "")
            low, high = scale * number.low, scale * number.high
            worst = f", lowest of {self.selected[row]}" if self.selected[row] > 1 else ""
            about = f" ({self.of[row]}{worst})" if self.of[row] else ""
            interval = f" [{low:.4g}, {high:.4g}]" if np.isfinite(low) else ""
            yield f"{self.metric[row]}{about}: {scale * number:.4g}{unit}{interval}"
        if self.note:
            yield kit.Finding(self.note, "VP101")


@kit.analysis
class Performance(kit.Analysis):
    """Metrics of the task: mean IoU, mean average precision, errors, accuracy by class."""

    name = "performance"
    images = kit.Sizes(quick=None, standard=None, work=0.5)
    rank = 0
    group = "predictions"
    needs = kit.Needs.OUTCOMES | kit.Needs.OUTPUTS
    source = "Brodersen et al. (2010) for the balanced accuracy"
    gives = (TaskMetrics,)

    def measure(self, subject: kit.Subject, run: kit.Run) -> Sequence[kit.Result]:
        """Predict the evaluation images once, and reduce the values of each image."""
        if subject.task.single_class:
            result = outcomes(subject.predictions(run))
            return (_of_classes(result, subject),)
        values, origin = _values(subject, run)
        rows = [(s, _estimate(s, values)) for s in subject.task.summaries()]
        return (
            TaskMetrics(
                metric=np.array([s.label for s, _ in rows]),
                unit=np.array([s.unit for s, _ in rows]),
                of=np.array([s.note for s, _ in rows]),
                value=stacked([number for _, number in rows]),
                selected=np.ones(len(rows), dtype=int),
                provenance=origin,
            ),
        )

    def cost(self, subject: kit.Subject) -> kit.Cost:
        """One pass."""
        return kit.Cost(per_image=1.0)


def _values(subject: kit.Subject, run: kit.Run) -> tuple[Mapping[str, np.ndarray], Any]:
    """What the task keeps of each image, in the order of the data."""
    task, parts = subject.task, []
    run = run.on(subject.model)
    with inference(subject.model, run.compute) as predict:
        for batch in run.track_share(subject.output_batches(run), "performance"):
            images, targets = labeled(batch, run.compute)
            parts.append(_by_image(task, predict(images).float().cpu(), targets))
    every = in_order(parts)
    values = {name: np.concatenate([part[name] for part in every]) for name in every[0]}
    origin = run.measured(
        images=len(values["outcome"]),
        batch_size=max(len(part["outcome"]) for part in every),
        image_shape=subject.anatomy.image_shape,
    )
    return values, origin


def _by_image(
    task: Task, outputs: torch.Tensor, targets: torch.Tensor
) -> dict[str, np.ndarray]:
    both = {"outcome": task.outcome(outputs, targets), "loss": task.loss(outputs, targets)}
    values = both | task.values(outputs, targets)
    return {name: value.double().numpy() for name, value in values.items()}


def _estimate(summary: Summary, values: Mapping[str, np.ndarray]) -> kit.Number:
    """A mean with its interval, or a statistic with the jackknife's over groups of images."""
    arrays = [values[name] for name in summary.values]
    if summary.statistic is None:
        interval = proportion if summary.unit == "%" else skewed
        return kit.mean(arrays[0], interval)
    statistic, number = summary.statistic, len(arrays[0])
    groups = min(number, _GROUPS)
    rows = np.full((groups, -(-number // groups)), -1)
    for group in range(groups):
        of_group = np.arange(group, number, groups)
        rows[group, : len(of_group)] = of_group

    def of_rows(members: np.ndarray) -> float:
        return statistic(*(array[members[members >= 0]] for array in arrays))

    estimate = jackknife(of_rows, rows, interval=student)
    if summary.unit == "%":
        low, high = np.clip([estimate.low, estimate.high], -np.inf, 1.0)
        return kit.Number(float(estimate), low, high, estimate.by_unit)
    return estimate


def _of_classes(result: Outcomes, subject: kit.Subject) -> TaskMetrics:
    """Balanced accuracy, the worst class, and the accuracy among the data's classes."""
    names, correct = subject.images.class_names, result.correct.astype(np.float64)
    classes, index, images = np.unique(result.target, return_inverse=True, return_counts=True)
    hits = np.bincount(index, correct)
    rows = [(BALANCED, "", _balanced(hits, images), 1)]
    worst = int(np.argmin(hits / images))
    low, high = wilson(hits[worst : worst + 1].astype(int), images[worst : worst + 1])
    number = kit.Number(hits[worst] / images[worst], low[0], high[0])
    label = str(names[classes[worst]]) if names else str(classes[worst])
    rows.append((WORST, label, number, len(classes)))
    subset = np.array(subject.images.class_subset, dtype=int)
    if len(subset):
        predictions = subject.passes.clean
        assert predictions is not None
        best = subset[predictions.logits[: len(result)][:, subset].argmax(1).numpy()]
        within = kit.mean((best == result.target).astype(np.float64), proportion)
        rows.append((WITHIN, f"{len(subset)} of {result.classes}", within, 1))
    metric, of, value, selected = zip(*rows, strict=True)
    return TaskMetrics(
        metric=np.array(metric),
        unit=np.full(len(rows), "%"),
        of=np.array(of),
        value=kit.Estimated(
            [float(v) for v in value], [v.low for v in value], [v.high for v in value]
        ),
        selected=np.array(selected),
        note=_relabeled(result, classes),
        provenance=result.provenance,
    )


def _balanced(hits: np.ndarray, images: np.ndarray) -> kit.Number:
    """Mean accuracy of the classes, whose standard error adds the classes' variances.

    Each class counts with the plus-four estimate of its accuracy, so that a class without an
    error has a variance too.
    """
    accuracy = float((hits / images).mean())
    p = (hits + 2) / (images + 4)
    error = float(np.sqrt((p * (1 - p) / images).sum())) / len(images)
    half = t_quantile(int(images.sum())) * error
    return kit.Number(accuracy, max(0.0, accuracy - half), min(1.0, accuracy + half))


def _relabeled(result: Outcomes, classes: np.ndarray) -> str:
    """Whether another order of the outputs would be far more accurate."""
    from scipy.optimize import linear_sum_assignment

    columns, column = np.unique(result.predicted, return_inverse=True)
    counts = np.zeros((len(classes), len(columns)))
    np.add.at(counts, (np.searchsorted(classes, result.target), column), 1)
    best = counts[linear_sum_assignment(-counts)].sum() / len(result)
    accuracy = float(result.correct.mean())
    if len(classes) < 3 or best - accuracy < _RELABELED or best < 2 * accuracy:
        return ""
    return (
        f"accuracy {accuracy:.1%}, and {best:.1%} with the outputs in another order: the model "
        "and the data may order their classes differently"
    )
