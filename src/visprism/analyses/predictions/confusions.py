"""Accuracy by class, and which classes a model takes for which."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from visprism import kit
from visprism.core.statistics import wilson
from visprism.drawing import style
from visprism.estimates.text import images_text, text_of
from visprism.passes.outcomes import Outcomes, outcomes_of
from visprism.passes.predictions import Predictions

_MOST = 20  # in a figure


@kit.result("class-accuracy", "Accuracy by class")
class ClassAccuracy(kit.Result):
    """Accuracy of the images of each class, the lowest first.

    The accuracy of each class with its 95% interval over the images of the class, the
    lowest first, at most 20 in the figure. The lowest of many is selected, so it is likely
    to be higher on new images.
    """

    row_names: ClassVar[tuple[str, ...]] = ("target",)

    target: kit.Texts = kit.column("Class", "", "name or number of the class")
    images: np.ndarray = kit.column("Images", "", "of the class")
    accuracy: kit.Estimated = kit.estimate(
        "Accuracy",
        "%",
        "fraction of these images that are classified correctly; Wilson's interval",
        asks="Which class has the lowest accuracy?",
        comparison="none",  # selected minima of different classes
    )

    def sentences(self) -> Iterator[str | kit.Finding]:
        """The class with the lowest accuracy."""
        if len(self) > 1:
            yield (
                f"lowest accuracy of {len(self)} classes: {self.target[0]}, "
                f"{text_of(self.accuracy[0], '.1%')} of "
                f"{images_text(int(self.images[0]), self.provenance.split)}"
            )

    def answered(self, name: str) -> np.ndarray:
        """The class with the lowest accuracy, the first row."""
        return np.arange(min(len(self), 1))

    def reading(self, name: str, row: int) -> dict[str, Any]:
        """The selection, and the class that has the lowest accuracy."""
        return {
            "quantity": "lowest accuracy of a class",
            "measure": "",
            "selected": len(self),
            "subject": str(self.target[row]),
        }


@kit.result("confusions", "Confusion matrix")
class Confusions(kit.Result):
    """How many images of a class are classified as which; the most frequent errors first.

    Rows are classes and columns predictions, in percent of the images of the class. With
    more than 20 classes, the figure shows the most frequent errors.
    """

    target: kit.Texts = kit.column("Class", "", "name or number of the class")
    predicted: kit.Texts = kit.column("Prediction", "", "name or number of the predicted class")
    images: np.ndarray = kit.column("Images", "", "of the class with this prediction")
    fraction: np.ndarray = kit.column("Fraction", "", "of the images of the class")

    @property
    def errors(self) -> "Confusions":
        """The rows of wrong predictions."""
        return self.select(self.target != self.predicted)

    def sentences(self) -> Iterator[str | kit.Finding]:
        """The most frequent error."""
        errors = self.errors
        if len(errors):
            yield (
                f"most frequent error: {errors.target[0]} classified as {errors.predicted[0]}, "
                f"{images_text(int(errors.images[0]), self.provenance.split)} "
                f"({errors.fraction[0]:.1%} of the class)"
            )


def class_texts(classes: np.ndarray, names: Sequence[str]) -> np.ndarray:
    """Names of classes, with their numbers where two are equal; numbers without names."""
    often = Counter(names)  # two classes of ImageNet are called crane
    texts = {c: f"{n} ({c})" if often[n] > 1 else n for c, n in enumerate(names)}
    return np.array([texts.get(c, str(c)) for c in classes.tolist()], dtype=str)


def accuracy_by_class(
    predictions: Predictions | Outcomes, class_names: Sequence[str] = ()
) -> tuple[ClassAccuracy, Confusions]:
    """Accuracy of each class that has images, and the counts n(class, prediction).

    Accuracy is n(c, c) / n(c) with Wilson's 95% interval over the images of the class; the
    fraction of a confusion is n(c, p) / n(c).

    Args:
        predictions: of a data set, or their outcomes.
        class_names: in the order of the classes; empty: numbers.
    """
    outcomes = outcomes_of(predictions)
    (targets, predictions), counts = np.unique(
        np.stack([outcomes.target, outcomes.predicted]), axis=1, return_counts=True
    )
    classes, row, images = np.unique(outcomes.target, return_inverse=True, return_counts=True)
    correct = np.bincount(row, outcomes.correct).astype(int)
    value, (low, high) = correct / images, wilson(correct, images)
    worst = np.argsort(value, kind="stable")
    accuracy = ClassAccuracy(
        target=class_texts(classes[worst], class_names),
        images=images[worst],
        accuracy=kit.Estimated(value[worst], low[worst], high[worst]),
        provenance=outcomes.provenance,
    )
    order = np.argsort(-counts, kind="stable")
    confusions = Confusions(
        target=class_texts(targets[order], class_names),
        predicted=class_texts(predictions[order], class_names),
        images=counts[order],
        fraction=(counts / images[np.searchsorted(classes, targets)])[order],
        provenance=outcomes.provenance,
    )
    return accuracy, confusions


@kit.figure(width=2.8, height=2.6, share=False)
def _(result: ClassAccuracy, ax: Axes) -> Axes:
    """The classes with the lowest accuracy, at most 20, with their intervals."""
    shown = result.select(np.arange(len(result)) < _MOST)
    names = shown.target.tolist()
    about = [f"{n} · {v:.1%}" for n, v in zip(names, shown.accuracy.tolist(), strict=True)]
    style.named_points(
        ax, names, shown.accuracy, about, [style.KIND_COLORS["conv"]] * len(shown)
    )
    ax.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    ax.set(xlim=(-0.02, 1.02), xlabel="Accuracy")
    return ax


@kit.figure(width=2.8, height=2.6, share=False)
def _(result: Confusions, ax: Axes) -> Axes:
    """Fractions of each class by prediction; of many classes the 20 most frequent errors."""
    every = {*result.target.tolist(), *result.predicted.tolist()}
    names = sorted(every, key=lambda name: (int(name), "") if name.isdigit() else (0, name))
    if len(names) > _MOST:
        errors = result.errors
        errors = errors.select(np.arange(len(errors)) < _MOST)
        places = -np.arange(len(errors))
        ax.barh(places, errors.images, color=style.KIND_COLORS["attention"])
        pairs = zip(errors.target, errors.predicted, strict=True)
        ax.set_yticks(places, [f"{target} as {predicted}" for target, predicted in pairs])
        ax.tick_params(axis="y", length=0)
        ax.set(xlabel="Images")
        return ax
    row, number = ([names.index(n) for n in c] for c in (result.target, result.predicted))
    matrix = np.zeros((len(names), len(names)))
    matrix[row, number] = result.fraction
    ax.imshow(matrix, cmap=style.SIMILARITY, vmin=0, vmax=1, aspect="auto")
    for i, j, fraction in zip(row, number, result.fraction.tolist(), strict=True):
        ax.text(
            j, i, f"{100 * fraction:.0f}", ha="center", va="center", fontsize="xx-small",
            color="white" if fraction < 0.5 else "black",
        )  # fmt: skip
    ax.set_xticks(range(len(names)), names, rotation=90)
    ax.set_yticks(range(len(names)), names)
    ax.tick_params(length=0)
    ax.set(xlabel="Prediction", ylabel="Class, % of its images")
    ax.spines[:].set_color(style.FAINT)
    return ax
