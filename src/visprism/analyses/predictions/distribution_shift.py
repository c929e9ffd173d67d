"""Distribution shift: accuracy on stored sets of shifted images, restricted to their classes.

Sources: Hendrycks & Dietterich (2019), ImageNet-C; Hendrycks et al. (2021), The many faces of
robustness (ImageNet-R); Hendrycks et al. (2021), Natural adversarial examples (ImageNet-A);
Wang et al. (2019), Learning robust global representations by penalizing local predictive power
(ImageNet-Sketch).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, ClassVar

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from visprism import kit
from visprism.core.statistics import difference_interval
from visprism.drawing import style
from visprism.estimates import corruption_error, text
from visprism.estimates.estimated import proportion, stacked
from visprism.images.images import ordered
from visprism.images.open_data import content_of, load_data
from visprism.images.stored import condition_of, stored_conditions
from visprism.passes.predict import predict
from visprism.passes.predictions import Predictions

_LISTED = 6  # sets of which each has a sentence
_LABELED = 40  # labels that fit


@kit.result("distribution-shift", "Accuracy on shifted images")
class ShiftedAccuracy(kit.Result):
    """Accuracy on each set of shifted images, next to that on the data; one row for each set.

    Each point is a stored set: the accuracy on its images, with its 95% interval. The mark
    is the accuracy on the data's images of the same classes. Predictions are restricted to
    the classes of a set.

    Where a set has a part of the classes, predictions are restricted to them, on both sides.
    Intervals are over images; intervals of drops are for two independent samples.
    """

    row_names: ClassVar[tuple[str, ...]] = ("shift",)

    shift: kit.Texts = kit.column("Set", "", "stored set, with its corruption and severity")
    corruption: kit.Texts = kit.column("Corruption", "", "of ImageNet-C or CIFAR-C; else empty")
    severity: np.ndarray = kit.column("Severity", "", "1 (mild) to 5 (severe); 0 without one")
    classes: np.ndarray = kit.column("Classes", "", "that predictions are restricted to")
    images: np.ndarray = kit.column("Images", "", "of the set")
    accuracy: kit.Estimated = kit.estimate("Accuracy", "%", "on the set, among its classes")
    reference_images: np.ndarray = kit.column("Images of the data", "", "of the same classes")
    reference: np.ndarray = kit.column(
        "Accuracy on the data", "", "on images of the same classes, among these classes"
    )
    drop: kit.Estimated = kit.estimate(
        "accuracy drop",
        kit.POINTS,
        "accuracy on the data minus that on the set",
        asks="How much does accuracy drop on shifted images?",
        comparison="none",
    )

    def answered(self, name: str) -> np.ndarray:
        """Each of up to six sets."""
        return np.arange(len(self) if len(self) <= _LISTED else 0)

    def sentences(self) -> Iterator[str | kit.Finding]:
        """Accuracy and drop of each set; of more than six sets the mean, the worst and mCE."""
        if len(self) > _LISTED:
            worst = int(self.accuracy.argmin())
            yield (
                f"mean accuracy {self.accuracy.mean():.1%} over {len(self)} sets (no interval: "
                f"sets may share images); lowest of {len(self)}: {self.shift[worst]}, "
                f"{text.text_of(self.accuracy[worst], '.1%')}"
            )
            if np.isfinite(self.mce):
                yield (
                    f"mCE {self.mce:.1%} of ImageNet-C, relative to AlexNet, over 15 "
                    "corruptions and 5 severities (no interval: sets may share images)"
                )
            return
        yield from super().sentences()

    @property
    def mce(self) -> float:
        """Mean corruption error of ImageNet-C, relative to AlexNet; NaN if a condition lacks.

        CE_c = sum over severities of the error / sum of AlexNet's, mCE = mean over the 15
        corruptions c. It takes all 15 at all five severities, 1,000 classes and 224x224 pixels.

        Source: Hendrycks and Dietterich (2019), sec. 4.1.
        """
        if tuple(self.provenance.image_shape[-2:]) != corruption_error.ALEXNET_IMAGES[:2]:
            return float("nan")
        columns = (self.corruption, self.severity, self.classes, self.accuracy)
        rows = zip(*(np.asarray(c).tolist() for c in columns), strict=True)
        errors = {
            (c, s): 1 - a for c, s, k, a in rows if k == corruption_error.ALEXNET_IMAGES[2]
        }
        return float(
            np.mean(
                list(
                    corruption_error.relative_errors(errors, corruption_error.ALEXNET).values()
                )
            )
        )


@kit.analysis
class DistributionShift(kit.Analysis):
    """Accuracy on stored sets of shifted images, such as ImageNet-C, -R, -A and -Sketch."""

    name = "distribution-shift"
    images = kit.Sizes(fewest=16)
    group = "robustness"
    needs = kit.Needs.TARGETS | kit.Needs.PIXELS | kit.Needs.OUTPUTS
    default = False  # which sets are stored, only the user can say
    required = "sets"
    source = "Hendrycks & Dietterich (2019); Hendrycks et al. (2021); Wang et al. (2019)"
    gives = ShiftedAccuracy

    sets: tuple[str, ...] = kit.option(
        (),
        "stored sets in the form of DATA, such as imagenet_r:DIR; imagenet_c:DIR stands for "
        "each of its corruptions and severities",
        names_data=True,
    )

    def measure(self, subject: kit.Subject, run: kit.Run) -> Sequence[kit.Result]:
        """Predict each set, and restrict the logits to its classes."""
        reference, rows = subject.predictions(run), []
        specs = list(chain.from_iterable(map(stored_conditions, self.sets)))
        for spec in run.track(specs, "sets of shifted images"):
            limited = load_data(spec, limit=subject.num_images, seed=run.seed)
            images = subject.with_outputs(ordered(limited))
            if images.num_classes != subject.num_classes:
                raise kit.InputError(
                    f"{spec} must have the {subject.num_classes} classes of the model, got "
                    f"{images.num_classes}"
                )
            batches = images.batches(subject.known_preprocessing, batch_size=subject.batch_size)
            shifted = predict(subject.model, batches, run=replace(run, progress=None))
            rows.append(
                (
                    spec,
                    *condition_of(spec),
                    *restricted(spec, shifted, reference, images.class_subset),
                )
            )
        shift, corruption, severity, classes, accuracy, clean, drop = zip(*rows, strict=True)
        return (
            ShiftedAccuracy(
                shift=np.array(shift),
                corruption=np.array(corruption),
                severity=np.array(severity),
                classes=np.array(classes),
                images=np.array([len(n.by_unit) for n in accuracy]),
                accuracy=stacked(accuracy),
                reference_images=np.array([len(n.by_unit) for n in clean]),
                reference=np.array(clean, dtype=float),
                drop=stacked(drop),
                provenance=reference.provenance,
            ),
        )

    @classmethod
    def content(cls, options: Mapping[str, Any]) -> list[str]:
        """A digest of each set, or the conditions of a set of many."""
        every = [(spec, stored_conditions(spec)) for spec in options["sets"]]
        return [
            content_of(spec) if conditions == [spec] else str(conditions)
            for spec, conditions in every
        ]

    def cost(self, subject: kit.Subject) -> kit.Cost:
        """One pass over each set, with as many images as the data."""
        return kit.Cost(per_image=1.0 + sum(len(stored_conditions(spec)) for spec in self.sets))

    def inapplicable(self, subject: kit.Subject) -> str | None:
        """Without stored sets, or without any condition in one of them."""
        return super().inapplicable(subject) or kit.reason_of_error(
            list, map(stored_conditions, self.sets)
        )


def restricted(
    name: str, shifted: Predictions, reference: Predictions, classes: Sequence[int]
) -> tuple[int, kit.Number, kit.Number, kit.Number]:
    """Number of the classes C of a set (all if none are given), both accuracies, and the drop.

    The prediction of an image is the class of C with the largest logit. The reference is
    restricted in the same way: to its images of the classes C, and to the logits of C.
    Intervals are Wilson's, and Newcombe's for differences of independent samples.

    Source: Newcombe (1998), Interval estimation for the difference between independent
    proportions, method 10.
    """
    classes = list(classes) or list(range(shifted.num_classes))
    if not set(shifted.targets.tolist()) <= set(classes):
        raise kit.InputError(f"targets of {name} must be among its classes, got others")
    if not set(reference.targets.tolist()) & set(classes):
        raise kit.InputError(
            f"the data must have images of the classes of {name}, got none of them"
        )
    accuracy, clean = (_accuracy(p, classes) for p in (shifted, reference))
    pair = [(float(n), n.low, n.high) for n in (accuracy, clean)]
    drop = kit.Number(clean - accuracy, *difference_interval(pair[0], pair[1], (0.0, 0.0)))
    return len(classes), accuracy, clean, drop


def _accuracy(predictions: Predictions, classes: Sequence[int]) -> Any:
    """Accuracy among some classes, over the images of them."""
    chosen = torch.tensor(sorted(classes))
    rows = torch.isin(predictions.targets, chosen)
    best = predictions.logits[rows][:, chosen].argmax(1)
    return kit.mean((chosen[best] == predictions.targets[rows]).double().numpy(), proportion)


@kit.figure(width=3.2, height=2.4, share=False)
def _(result: ShiftedAccuracy, ax: Axes) -> Axes:
    """Accuracy on each set with its interval, and a mark for that on the data."""
    names, values = result.shift.tolist(), result.accuracy
    short = [name.partition("?")[2] or name.partition(":")[0] for name in names]
    labels = short if len(names) <= _LABELED else [""] * len(names)
    about = [f"{n} · {v:.1%}" for n, v in zip(names, values.tolist(), strict=True)]
    style.named_points(ax, labels, values, about, [style.KIND_COLORS["conv"]] * len(names))
    places, name = -np.arange(len(names)), "data, same classes"
    ax.plot(result.reference, places, "|", color=style.INK, markersize=7, label=name)
    ax.set(xlabel=result.infos()["accuracy"].heading, xlim=(0, 1))
    ax.xaxis.set_major_formatter(PercentFormatter(1, decimals=None))
    style.legend(ax, fontsize="small")
    return ax
