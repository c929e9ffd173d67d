"""Accuracy on stored sets of shifted images."""

import numpy as np

from visprism.estimates import questions
from visprism.estimates.answers import POINTS, Answer
from visprism.estimates.findings import Finding
from visprism.estimates.text import images_text, interval_text, points_text
from visprism.results.robustness import ALEXNET, ALEXNET_CLASSES, ALEXNET_SIZE
from visprism.table.result import Result, column, result_type


@result_type("distribution-shift")
class DistributionShift(Result):
    """Accuracy on each set of shifted images, next to that on the data; one row for each set.

    Where a set has a part of the classes, predictions are restricted to them, on both sides.
    Intervals are over images; those of drops are of two independent samples.
    """

    shift: np.ndarray = column("Set", "", "stored set, with its corruption and severity")
    corruption: np.ndarray = column("Corruption", "", "of ImageNet-C or CIFAR-C; else empty")
    severity: np.ndarray = column("Severity", "", "1 (mild) to 5 (severe); 0 without one")
    classes: np.ndarray = column("Classes", "", "that predictions are restricted to")
    images: np.ndarray = column("Images", "", "of the set")
    accuracy: np.ndarray = column("Accuracy", "", "on the set, among its classes")
    accuracy_low: np.ndarray = column("Accuracy, low", "", "lower end of the 95% interval")
    accuracy_high: np.ndarray = column("Accuracy, high", "", "upper end of the 95% interval")
    reference_images: np.ndarray = column("Images of the data", "", "of the same classes")
    reference: np.ndarray = column(
        "Accuracy on the data", "", "on images of the same classes, among these classes"
    )
    drop: np.ndarray = column("Accuracy drop", "", "accuracy on the data minus that on the set")
    drop_low: np.ndarray = column("Accuracy drop, low", "", "lower end of the 95% interval")
    drop_high: np.ndarray = column("Accuracy drop, high", "", "upper end of the 95% interval")

    def findings(self) -> tuple[Finding, ...]:
        """Accuracy and drop of each set; of more than six sets the mean, the worst and mCE."""
        if len(self) > 6:
            return (self._summary(), *self._mce_finding())
        return tuple(Finding(self._text(i)) for i in range(len(self)))

    @property
    def mce(self) -> float:
        """Mean corruption error of ImageNet-C, relative to AlexNet; NaN if a condition lacks.

        CE_c = sum over severities of the error / sum of AlexNet's, mCE = mean over the 15
        corruptions c. It takes all 15 at all five severities, 1,000 classes and 224x224 pixels.

        Source: Hendrycks and Dietterich (2019), sec. 4.1.
        """
        if tuple(self.provenance.image_shape[-2:]) != ALEXNET_SIZE:
            return float("nan")
        errors: dict[tuple[str, int], float] = {
            (str(c), int(s)): 1 - float(a)
            for c, s, k, a in zip(
                self.corruption, self.severity, self.classes, self.accuracy, strict=True
            )
            if k == ALEXNET_CLASSES
        }
        conditions = {(c, s) for c in ALEXNET for s in range(1, 6)}
        if not conditions <= set(errors):
            return float("nan")
        relative = [
            np.mean([errors[c, s] for s in range(1, 6)]) / reference
            for c, reference in ALEXNET.items()
        ]
        return float(np.mean(relative))

    def _mce_finding(self) -> tuple[Finding, ...]:
        if np.isnan(self.mce):
            return ()
        return (
            Finding(
                f"mCE {self.mce:.1%} of ImageNet-C, relative to AlexNet, over 15 corruptions "
                "and 5 severities (no interval: sets may share images)"
            ),
        )

    def _text(self, row: int) -> str:
        images = images_text(int(self.images[row]), "test")
        reference = images_text(int(self.reference_images[row]), self.provenance.split)
        return (
            f"{self.shift[row]}: accuracy {interval_text(*_row(self, 'accuracy', row), '.1%')} "
            f"on {images} among {self.classes[row]:,} classes, "
            f"{points_text(*_row(self, 'drop', row))} below {self.reference[row]:.1%} on "
            f"{reference} of the data"
        )

    def _summary(self) -> Finding:
        worst = int(self.accuracy.argmin())
        return Finding(
            f"mean accuracy {self.accuracy.mean():.1%} over {len(self)} sets (no interval: "
            f"sets may share images); lowest of {len(self)}: {self.shift[worst]}, "
            + interval_text(*_row(self, "accuracy", worst), ".1%")
            + ", interval not adjusted for this selection"
        )

    def answers(self) -> tuple[Answer, ...]:
        """The accuracy drop of each of up to six sets."""
        rows = range(len(self)) if len(self) <= 6 else ()
        return tuple(
            Answer(
                question=questions.SHIFTED_IMAGES.text,
                quantity=f"accuracy drop, {self.shift[i]}",
                value=float(self.drop[i]),
                low=float(self.drop_low[i]),
                high=float(self.drop_high[i]),
                unit=POINTS,
                over="images",
            )
            for i in rows
        )


def _row(result: DistributionShift, name: str, row: int) -> tuple[float, float, float]:
    """A value with the ends of its interval."""
    columns = (getattr(result, f"{name}{end}") for end in ("", "_low", "_high"))
    value, low, high = (float(column[row]) for column in columns)
    return value, low, high
