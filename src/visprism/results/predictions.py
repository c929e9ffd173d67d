"""Results of predictions: the outcome of each image, and how two models differ in outcomes."""

from collections.abc import Sequence
from dataclasses import replace
from math import isfinite, nan

import numpy as np
from jaxtyping import Int64

from visprism.core.errors import InputError
from visprism.core.kappa import kappa_interval
from visprism.core.statistics import FEWEST_DIFFERENT, correlation, difference_interval, wilson
from visprism.estimates import questions
from visprism.estimates.answers import Answer
from visprism.estimates.findings import Finding
from visprism.estimates.text import images_text, interval_text
from visprism.results.calibration_error import (
    FEWEST_IMAGES,
    calibration_contributions,
    calibration_error,
)
from visprism.results.differences import Differences, Row
from visprism.results.per_image import ACCURACY, LOSSES, PerImage
from visprism.table.result import Result, column, result_type, scalar


@result_type("outcomes")
class Outcomes(Result):
    """Class, confidence and losses of the prediction of each image; one row per image."""

    target: np.ndarray = column("Target", "", "class of the image")
    predicted: np.ndarray = column(
        "Prediction", "", "class with the highest probability; the first of equal ones"
    )
    correct: np.ndarray = column("Correct", "", "whether the prediction is the target")
    top5: np.ndarray = column(
        "Correct in top 5", "", "whether the target is among the five most probable classes"
    )
    confidence: np.ndarray = column("Confidence", "", "probability of the predicted class")
    nll: np.ndarray = column("NLL", "nats", "-log probability of the target")
    brier: np.ndarray = column(
        "Brier score", "", "sum over classes of (probability - one-hot target)^2"
    )
    classes: int = scalar("Classes", "", "number of classes of the model", default=0)
    passes: int = scalar(
        "Passes", "", "number of passes or models whose probabilities are averaged", default=1
    )

    def per_image(self) -> PerImage:
        """Accuracy, NLL, Brier score and signed calibration error of each image."""
        losses = self.nll, self.brier, self.confidence - self.correct
        values = {ACCURACY: self.correct, **dict(zip(LOSSES, losses, strict=True))}
        n = len(self)
        return PerImage(
            quantity=np.repeat(list(values), n),
            image=np.tile(np.arange(n), len(values)),
            value=np.concatenate([value.astype(np.float64) for value in values.values()]),
            provenance=self.provenance,
        )


@result_type("error-consistency")
class ErrorConsistency(Result):
    """Whether two models err on the same images; one row per image on which they differ."""

    image: np.ndarray = column(
        "Image", "", "index of the image; in a study, into `Study.positions`"
    )
    only_first: np.ndarray = column(
        "First only", "", "whether only the first model classifies the image correctly"
    )
    position: np.ndarray = column(
        "Position", "", "index of the image in the data; -1 where it is not known"
    )
    target: np.ndarray = column("Target", "", "class of the image")
    first: np.ndarray = column("First prediction", "", "class that the first model predicts")
    second: np.ndarray = column("Second prediction", "", "class that the second model predicts")
    images: int = scalar("Images", "", "number of images", default=0)
    both_correct: int = scalar(
        "Both correct", "", "images that both classify correctly", default=0
    )
    both_wrong: int = scalar(
        "Both wrong", "", "images that neither classifies correctly", default=0
    )
    observed: float = scalar(
        "Observed agreement", "", "fraction of images both correct or both wrong", default=nan
    )
    expected: float = scalar(
        "Expected agreement", "", "of independent models with these accuracies", default=nan
    )
    kappa: float = scalar(
        "Error consistency",
        "",
        "Cohen's kappa, (observed - expected) / (1 - expected)",
        default=nan,
    )
    low: float = scalar("Low", "", "lower end of the 95% interval of kappa", default=nan)
    high: float = scalar("High", "", "upper end of the 95% interval of kappa", default=nan)
    first_model: str = scalar("First model", "", "name of the first model", default="")
    second_model: str = scalar("Second model", "", "name of the second model", default="")

    def findings(self) -> tuple[Finding, ...]:
        """Kappa with its agreement, and the number of images on which the models differ."""
        first, second = self._names
        only = int(self.only_first.sum())
        images = images_text(self.images, self.provenance.split)
        missing = self._missing_interval()
        reason = f"no interval: {missing}; " if missing else ""
        agreement = (
            f"observed agreement {self.observed:.1%}, {self.expected:.1%} expected of "
            "independent errors"
        )
        if np.isnan(self.kappa):
            kappa = f"is undefined, as {missing}; {agreement}, {images}"
        else:
            number = interval_text(self.kappa, self.low, self.high)
            kappa = f"of {first} and {second}: kappa {number} over {images} "
            kappa += f"({reason}{agreement})"
        return (
            Finding(f"error consistency {kappa}"),
            Finding(
                f"{only} of {images} are classified correctly by {first} only, "
                f"{len(self) - only} by {second} only"
            ),
        )

    def answers(self) -> tuple[Answer, ...]:
        """How many images one model alone classifies correctly, and Cohen's kappa."""
        first, second = self._names
        only = int(self.only_first.sum())
        return (
            Answer(
                questions.DISAGREEMENT.text,
                "fraction of images that only one model classifies correctly",
                len(self) / self.images if self.images else nan,
                *self._differing_interval(),
                unit="%",
                over="images",
                reading=f"{only} by {first} only, {len(self) - only} by {second} only",
            ),
            Answer(
                questions.ERRORS.text,
                "error consistency (Cohen's kappa)",
                self.kappa,
                self.low,
                self.high,
                over="images",
                missing=self._missing_interval(),
            ),
        )

    def _differing_interval(self) -> tuple[float, float]:
        """95% Wilson interval of the fraction of images on which the models differ."""
        if not self.images:
            return nan, nan
        (low,), (high,) = wilson(np.array([len(self)]), np.array([self.images]))
        return float(low), float(high)

    @property
    def _names(self) -> tuple[str, str]:
        return self.first_model or "first model", self.second_model or "second model"

    def _missing_interval(self) -> str:
        """Why kappa has no interval; empty where it has one."""
        if isfinite(self.low):
            return ""
        only = int(self.only_first.sum())
        wrong = self.both_wrong + len(self) - only, self.both_wrong + only
        if np.isnan(self.kappa):
            return f"both models are {'wrong' if any(wrong) else 'correct'} on all images"
        for name, errors in zip(self._names, wrong, strict=True):
            if errors in (0, self.images):
                outcome = "wrong" if errors else "correct"
                return f"{name} is {outcome} on all images, so that kappa is 0 in any case"
        few = [
            f"{name} is {outcome} on {number}"
            for name, errors in zip(self._names, wrong, strict=True)
            for outcome, number in (("wrong", errors), ("correct", self.images - errors))
            if number < FEWEST_DIFFERENT
        ]
        return f"{' and '.join(few)} of the images, fewer than {FEWEST_DIFFERENT}"


def error_consistency(
    first: Outcomes,
    second: Outcomes,
    *,
    names: tuple[str, str] | None = None,
    class_names: Sequence[str] = (),
    positions: Int64[np.ndarray, " n"] | None = None,
) -> ErrorConsistency:
    """Agreement of two models in which images they classify correctly, beyond chance.

    With accuracies p and q, c_exp = p q + (1 - p)(1 - q) is the agreement of independent
    errors, c_obs the fraction of images both correct or both wrong, and
    kappa = (c_obs - c_exp) / (1 - c_exp). The interval is that of
    `visprism.core.kappa.kappa_interval`; there is none where one of the models has fewer than 5
    correct or 5 wrong predictions. Kappa is NaN where 1 - c_exp is 0, and 0 in any case where
    one model alone is correct, or wrong, on all images: c_obs is c_exp then.

    Args:
        first: outcomes of the first model.
        second: outcomes of the second model on the same images.
        names: of the two models; those in the provenance by default.
        class_names: names of the classes; their numbers by default.
        positions: index of each image in the data.

    Source: Geirhos, Meding and Wichmann (2020), Beyond accuracy: quantifying trial-by-trial
    behaviour of CNNs and humans by measuring error consistency.
    """
    _check_same_images(first, second)
    names = names or (first.provenance.model, second.provenance.model)
    a, b = first.correct.astype(bool), second.correct.astype(bool)
    n = len(a)
    # Rows: first model wrong, correct; columns: second model wrong, correct.
    counts = np.array([[(~a & ~b).sum(), (~a & b).sum()], [(a & ~b).sum(), (a & b).sum()]])
    table = counts / n
    observed = float(np.trace(table))
    expected = float(table.sum(1) @ table.sum(0))
    kappa = (observed - expected) / (1 - expected) if expected < 1 else nan
    low, high = kappa_interval(counts.astype(np.float64))
    differ = np.flatnonzero(a != b)
    return ErrorConsistency(
        image=differ,
        only_first=a[differ],
        position=np.full(len(differ), -1) if positions is None else positions[differ],
        target=_class_texts(first.target[differ], class_names),
        first=_class_texts(first.predicted[differ], class_names),
        second=_class_texts(second.predicted[differ], class_names),
        images=n,
        both_correct=int((a & b).sum()),
        both_wrong=int((~a & ~b).sum()),
        observed=observed,
        expected=expected,
        kappa=kappa,
        low=low,
        high=high,
        first_model=names[0],
        second_model=names[1],
        provenance=replace(first.provenance, model=" and ".join(filter(None, names))),
    )


def _class_texts(classes: np.ndarray, names: Sequence[str]) -> np.ndarray:
    """Names of classes, or their numbers where they have none."""
    texts = [names[i] if 0 <= i < len(names) else str(i) for i in classes.tolist()]
    return np.array(texts, dtype=str)


def calibration_differences(
    first: Outcomes, second: Outcomes, *, bins: int = 10
) -> Differences:
    """Difference of the debiased ECE of two models, with a paired interval over images.

    It is that of `visprism.core.statistics.difference_interval`, with the correlation of the
    contributions of the images.

    Where the lower end of a model is 0, it may be calibrated exactly. Its debiased ECE is then
    too large on average and not normal, and a correlation of -1 is taken at that end.

    Args:
        first: outcomes of the first model.
        second: outcomes of the second model on the same images.
        bins: bins of the confidence.

    Source: Zou and Donner (2008), Construction of confidence limits about effect measures: a
    general approach.
    """
    _check_same_images(first, second)
    pair = [(result.confidence, result.correct.astype(bool)) for result in (first, second)]
    a, b = (calibration_error(*columns, bins=bins) for columns in pair)
    r = correlation(*(calibration_contributions(*columns, bins=bins) for columns in pair))
    low, high = difference_interval(
        (a.debiased, a.low, a.high),
        (b.debiased, b.low, b.high),
        (r if b.low > 0 else -1.0, r if a.low > 0 else -1.0),
    )
    missing = "" if np.isfinite(low) else f"fewer than {FEWEST_IMAGES} images"
    row = Row("debiased ECE", a.debiased, b.debiased, low, high, len(first), missing)
    return Differences.of([row], first.provenance, second.provenance)


def _check_same_images(first: Outcomes, second: Outcomes) -> None:
    if not len(first) or not np.array_equal(first.target, second.target):
        raise InputError(
            "first and second must be outcomes of the same images in the same order, got "
            f"{len(first)} and {len(second)} images with different targets"
        )
