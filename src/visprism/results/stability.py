"""Result on perturbation sequences: how often the predicted class changes."""

from math import nan

import numpy as np

from visprism.results.answers import Answer
from visprism.results.base import Result, column, result_type, scalar
from visprism.results.findings import Finding
from visprism.results.text import images_text, interval_text, selection_text


@result_type("stability")
class Stability(Result):
    """How often the predicted class changes along sequences; one row per perturbation."""

    perturbation: np.ndarray = column("Perturbation", "", "name of the perturbation")
    frames: np.ndarray = column("Frames", "", "frames of a sequence")
    flip_rate: np.ndarray = column(
        "Flip rate", "", "fraction of frames with another class than their reference frame"
    )
    flip_low: np.ndarray = column("Low", "", "lower end of the 95 % interval over images")
    flip_high: np.ndarray = column("High", "", "upper end of the 95 % interval over images")
    consistency: np.ndarray = column(
        "Consistency", "", "fraction of frames with the class of the frame before"
    )
    mean_flip_rate: float = scalar("Mean flip rate", "", "mean over perturbations", default=nan)
    mean_flip_low: float = scalar(
        "Mean flip rate, low", "", "lower end of the 95 % interval over images", default=nan
    )
    mean_flip_high: float = scalar(
        "Mean flip rate, high", "", "upper end of the 95 % interval over images", default=nan
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
                "Are predictions stable along perturbation sequences?",
                "mean flip rate",
                self.mean_flip_rate,
                self.mean_flip_low,
                self.mean_flip_high,
                unit="%",
                over="images",
            ),
        )
