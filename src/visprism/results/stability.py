"""Result on perturbation sequences: how often the predicted class changes."""

from math import nan

import numpy as np

from visprism.core.errors import InputError
from visprism.estimates import questions
from visprism.estimates.answers import Answer
from visprism.estimates.findings import Finding
from visprism.estimates.text import images_text, interval_text, selection_text
from visprism.table.result import Result, column, result_type, scalar


@result_type("stability")
class Stability(Result):
    """How often the predicted class changes along sequences; one row per perturbation."""

    perturbation: np.ndarray = column("Perturbation", "", "name of the perturbation")
    frames: np.ndarray = column("Frames", "", "frames of a sequence")
    flip_rate: np.ndarray = column(
        "Flip rate", "", "fraction of frames with another class than their reference frame"
    )
    flip_low: np.ndarray = column("Low", "", "lower end of the 95% interval over images")
    flip_high: np.ndarray = column("High", "", "upper end of the 95% interval over images")
    consistency: np.ndarray = column(
        "Consistency", "", "fraction of frames with the class of the frame before"
    )
    mean_flip_rate: float = scalar("Mean flip rate", "", "mean over perturbations", default=nan)
    mean_flip_low: float = scalar(
        "Mean flip rate, low", "", "lower end of the 95% interval over images", default=nan
    )
    mean_flip_high: float = scalar(
        "Mean flip rate, high", "", "upper end of the 95% interval over images", default=nan
    )

    def findings(self) -> tuple[Finding, ...]:
        """The mean flip rate, and the highest of a perturbation."""
        mean = interval_text(
            self.mean_flip_rate, self.mean_flip_low, self.mean_flip_high, ".2%"
        )
        worst = int(self.flip_rate.argmax())
        highest = interval_text(
            self.flip_rate[worst], self.flip_low[worst], self.flip_high[worst], ".2%"
        )
        compared = len(self) if np.isfinite(self.flip_low[worst]) else 1
        images = images_text(self.provenance.images, self.provenance.split)
        several = "" if len(self) == 1 else "s"
        return (
            Finding(f"mean flip rate {mean} over {len(self)} perturbation{several} ({images})"),
            Finding(
                f"highest of {len(self)}: {self.perturbation[worst].replace('_', ' ')}, "
                f"{highest} over {images}{selection_text(compared)}"
            ),
        )

    def answers(self) -> tuple[Answer, ...]:
        """The mean flip rate."""
        return (
            Answer(
                questions.STABILITY.text,
                "mean flip rate",
                self.mean_flip_rate,
                self.mean_flip_low,
                self.mean_flip_high,
                unit="%",
                over="images",
            ),
        )


@result_type("relative-flip-rates")
class RelativeFlipRates(Result):
    """Flip rates of a model over those of a reference model; one row per perturbation.

    With AlexNet as the reference and the perturbations of ImageNet-P, the mean is mFR.
    """

    perturbation: np.ndarray = column("Perturbation", "", "name of the perturbation")
    ratio: np.ndarray = column(
        "Relative flip rate", "", "flip rate over that of the reference; NaN if that is 0"
    )
    flip_rate: np.ndarray = column("Flip rate", "", "of the model")
    reference_rate: np.ndarray = column("Reference flip rate", "", "of the reference")
    mean_ratio: float = scalar(
        "Mean relative flip rate", "", "over perturbations; NaN if one is undefined"
    )
    model: str = scalar("Model", "", "name of the model", default="")
    reference: str = scalar("Reference", "", "name of the reference model", default="")

    def findings(self) -> tuple[Finding, ...]:
        """The mean over perturbations, and its largest term."""
        if not np.isfinite(self.mean_ratio):
            return (
                Finding(
                    f"flip rate relative to {self.reference} undefined: without any flip of "
                    f"{self.reference} along {int(np.isnan(self.ratio).sum())} perturbations"
                ),
            )
        worst = int(self.ratio.argmax())
        name = str(self.perturbation[worst]).replace("_", " ")
        images = images_text(self.provenance.images, self.provenance.split)
        return (
            Finding(
                f"mean flip rate of {self.model} relative to {self.reference} "
                f"{self.mean_ratio:.1%} over {len(self)} perturbations, largest of "
                f"{len(self)}: {name}, {self.ratio[worst]:.1%} (no interval: a ratio; {images})"
            ),
        )


def relative_flip_rates(
    result: Stability, reference: Stability, *, model: str = "", reference_model: str = ""
) -> RelativeFlipRates:
    """Flip rates over those of a reference model, perturbation by perturbation.

    mFR = 1/P sum_p FR_p / FR_p^AlexNet over P perturbations, where the reference is AlexNet.

    Source: Hendrycks and Dietterich (2019), sec. 4.2.
    """
    same = result.perturbation.tolist() == reference.perturbation.tolist()
    if not same or result.frames.tolist() != reference.frames.tolist():
        raise InputError(
            "reference must have the perturbations and frames of the result, got "
            f"{', '.join(reference.perturbation.tolist())}"
        )
    undefined = np.full(len(result), nan)
    ratio = np.divide(
        result.flip_rate, reference.flip_rate, out=undefined, where=reference.flip_rate > 0
    )
    return RelativeFlipRates(
        perturbation=result.perturbation,
        ratio=ratio,
        flip_rate=result.flip_rate,
        reference_rate=reference.flip_rate,
        mean_ratio=float(ratio.mean()),
        model=model,
        reference=reference_model,
        provenance=result.provenance,
    )
