"""Contrast of high and low frequencies of noise within one model."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from visprism.core.errors import InputError
from visprism.estimates import questions
from visprism.estimates.answers import POINTS, Answer
from visprism.estimates.chance import chance_findings
from visprism.estimates.findings import Finding
from visprism.estimates.text import images_text, missing_interval, points_text
from visprism.results.perturbations import FrequencyRobustness
from visprism.table.result import Result, column, result_type, scalar

EQUAL_ENERGY, PAPER = "equal energy", "paper"
CONTRAST = "accuracy drop, bands above 0.5 π rad/pixel minus bands below"
_NOISES = {EQUAL_ENERGY: "noise of equal energy in each band", PAPER: "the paper's noise"}


@result_type("frequency-contrasts")
class FrequencyContrasts(Result):
    """Accuracy drop of high minus that of low frequencies; one row for each kind of noise.

    The paper's noise is stronger at high frequencies. What holds for it alone is a statement
    about the strength of the noise. Claim C7 of the paper is about two models; the differences
    of `FrequencyRobustness` between them decide it.
    """

    noise: np.ndarray = column("Noise", "", "'equal energy' in each band, or 'paper'")
    contrast: np.ndarray = column(
        "High minus low",
        "",
        "mean accuracy drop of bands above 0.5 π rad/pixel minus that of bands below",
    )
    low: np.ndarray = column("Low", "", "lower end of the 95% interval over images")
    high: np.ndarray = column("High", "", "upper end of the 95% interval over images")
    rms_ratio: np.ndarray = column(
        "Noise, high over low", "", "RMS of the noise of the highest over the lowest band"
    )
    clean_accuracy: float = scalar(
        "Clean accuracy", "", "accuracy without noise", default=float("nan")
    )
    classes: int = scalar("Classes", "", "number of classes of the model", default=0)

    def findings(self) -> tuple[Finding, ...]:
        """The contrast under each noise."""
        images = images_text(self.provenance.images, self.provenance.split)
        origin = self.provenance
        findings = [
            *chance_findings(self.clean_accuracy, origin.images, self.classes, origin.split)
        ]
        for i, noise in enumerate(self.noise.tolist()):
            text = (
                f"{_NOISES[noise]} (RMS of the highest over the lowest band "
                f"{self.rms_ratio[i]:.2g}): accuracy drop of bands above 0.5 π rad/pixel minus "
                f"bands below {self._text(i)} over {images}"
            )
            findings.append(Finding(text))
        return tuple(findings)

    def answers(self) -> tuple[Answer, ...]:
        """The contrast under each noise."""
        return tuple(
            Answer(
                question=questions.NOISE_FREQUENCY.text,
                quantity=contrast_name(noise),
                value=float(self.contrast[i]),
                low=float(self.low[i]),
                high=float(self.high[i]),
                unit=POINTS,
                over="images",
                in_pixels=True,
                reading=self._reading(i),
            )
            for i, noise in enumerate(self.noise.tolist())
        )

    def _reading(self, row: int) -> str:
        if self.low[row] > 0:
            return "high frequencies cost more accuracy"
        if self.high[row] < 0:
            return "low frequencies cost more accuracy"
        return "not significant" if np.isfinite(self.low[row]) else ""

    def _text(self, row: int) -> str:
        text = points_text(self.contrast[row], self.low[row], self.high[row])
        text += missing_interval(float(self.low[row]), self.provenance.images)
        return f"{text}{', not significant' * bool(self.low[row] <= 0 <= self.high[row])}"


def contrast_name(noise: str) -> str:
    """Name of the contrast in answers and among the values of single images."""
    return CONTRAST if noise == EQUAL_ENERGY else f"{CONTRAST} (paper's noise)"


def frequency_contrasts(
    results: Sequence[FrequencyRobustness],
) -> FrequencyContrasts:
    """The contrasts of one model under one or several kinds of noise, side by side.

    Args:
        results: with bands above and below 0.5 π rad/pixel; each names its protocol.
    """
    if not results or not all(np.isfinite(result.contrast) for result in results):
        raise InputError(
            "results must have bands above and below 0.5 π rad/pixel, got "
            f"{[result.frequency.tolist() for result in results]}"
        )
    return FrequencyContrasts(
        noise=np.array(
            [PAPER if r.provenance.protocol == PAPER else EQUAL_ENERGY for r in results]
        ),
        contrast=np.array([r.contrast for r in results]),
        low=np.array([r.contrast_low for r in results]),
        high=np.array([r.contrast_high for r in results]),
        rms_ratio=np.array(
            [r.rms[r.frequency.argmax()] / r.rms[r.frequency.argmin()] for r in results]
        ),
        clean_accuracy=results[0].clean_accuracy,
        classes=results[0].classes,
        provenance=replace(results[0].provenance, protocol="default"),
    )
