"""Contrast of high and low frequencies of noise, by which claim C7 is judged."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from visprism.core.errors import InputError
from visprism.results import questions
from visprism.results.answers import POINTS, Answer, Verdict
from visprism.results.base import Result, column, result_type, scalar
from visprism.results.chance import at_chance, chance_findings
from visprism.results.findings import Finding
from visprism.results.perturbations import FrequencyRobustness
from visprism.results.text import images_text, missing_interval, points_text

EQUAL_ENERGY, PAPER = "equal energy", "paper"
CONTRAST = "accuracy drop, bands above 0.5 π rad/pixel minus bands below"
_NOISES = {EQUAL_ENERGY: "noise of equal energy in each band", PAPER: "the paper's noise"}

# What the paper claims: attention withstands noise of high frequency, convolution that of low.
_EXPECTED = {"attention": -1, "conv": 1}


@result_type("frequency-contrasts")
class FrequencyContrasts(Result):
    """Accuracy drop of high minus that of low frequencies; one row for each kind of noise.

    The paper's noise is stronger at high frequencies. A claim that holds for it alone is one
    about the strength of the noise.
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
    mixing: str = scalar(
        "Mixing",
        "",
        "'attention' or 'conv', whichever most blocks of the model are; '' for neither",
        default="",
    )
    clean_accuracy: float = scalar(
        "Clean accuracy", "", "accuracy without noise", default=float("nan")
    )
    classes: int = scalar("Classes", "", "number of classes of the model", default=0)

    def findings(self) -> tuple[Finding, ...]:
        """The contrast under each noise, and what it says about claim C7."""
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
            if verdict := self.verdict(i):
                blocks = "attention" if self.mixing == "attention" else "convolutional"
                end = "high" if self.mixing == "attention" else "low"
                text += (
                    f"; claim C7 within one model, that noise of {end} frequency costs "
                    f"{blocks} models less accuracy: {verdict}"
                )
            findings.append(Finding(text))
        return tuple(findings)

    def answers(self) -> tuple[Answer, ...]:
        """The contrast under each noise.

        Claim C7 is about two models, so that the contrast within one has no verdict here.
        """
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
                claim="C7",
                reading=self._reading(i),
            )
            for i, noise in enumerate(self.noise.tolist())
        )

    def verdict(self, row: int) -> Verdict:
        """What the sign of the contrast says about claim C7, for this model.

        None for a model whose accuracy is not significantly above chance.
        """
        expected = _EXPECTED.get(self.mixing)
        guessing = at_chance(self.clean_accuracy, self.provenance.images, self.classes)
        if expected is None or guessing or not np.isfinite(self.low[row]):
            return ""
        low, high = sorted((expected * self.low[row], expected * self.high[row]))
        return "supports" if low > 0 else "contradicts" if high < 0 else "undecided"

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
    results: Sequence[FrequencyRobustness], *, mixing: str = ""
) -> FrequencyContrasts:
    """The contrasts of one model under one or several kinds of noise, side by side.

    Args:
        results: with bands above and below 0.5 π rad/pixel; each names its protocol.
        mixing: "attention" or "conv", whichever most blocks of the model are; "" for neither.

    Raises:
        InputError: if there are none, or one has bands on one side only.
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
        mixing=mixing,
        clean_accuracy=results[0].clean_accuracy,
        classes=results[0].classes,
        provenance=replace(results[0].provenance, protocol="default"),
    )
