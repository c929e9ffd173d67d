"""Frequency noise: accuracy under noise confined to one band of frequencies.

x' = x + n_f, with n_f the part of Gaussian white noise whose frequency lies in a band about f,
scaled for each image to one root mean square: equal energy in every band. The paper's protocol
adds instead the band of the signs of white noise in normalized images, which is stronger at
high frequencies. Pixels are not clipped.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import nan
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from visprism import kit
from visprism.analyses.predictions.bands import (
    BAND_CENTERS,
    BAND_WIDTH,
    band,
    filtered,
    paper_band,
    with_rms,
)
from visprism.analyses.predictions.perturbed import PerturbedAccuracy, drops_text
from visprism.estimates import estimated
from visprism.estimates.findings import chance_findings
from visprism.passes import perturbed

Condition = tuple[str, float]  # protocol, center of the band

PAPER_AMPLITUDE = 0.7  # that Park and Kim state for their figure; their code has 0.007
SPLIT = 0.5  # π rad/pixel; bands above it are "high", those below "low"
EQUAL_ENERGY, PAPER = "equal energy", "paper"
_ABOVE, _BELOW = "bands above 0.5 π rad/pixel", "bands below 0.5 π rad/pixel"


def _mean_of(bands: str, asks: str, better: Literal["", "lower"] = "lower") -> Any:
    return kit.estimate(
        f"accuracy drop, mean over {bands}",
        kit.POINTS,
        asks=asks,
        better=better,
        in_pixels=True,
        default=nan,
        reduce=kit.Reduce.DROP,
    )


@kit.result("frequency-robustness", "Robustness to noise of frequency bands")
class BandAccuracy(kit.Curve):
    """Accuracy under noise confined to a band of frequencies; one row for each band.

    Accuracy drop under noise of equal energy in each frequency band, with its 95% interval
    over images. High frequencies are to the right.
    """

    value_name: ClassVar[str] = "drop"
    x_name: ClassVar[str] = "frequency"

    frequency: np.ndarray = kit.column("Frequency", "π rad/pixel", "center of the band")
    rms: np.ndarray = kit.column(
        "RMS of the noise", "", "root mean square over all images, in pixels of 0 ... 1"
    )
    accuracy: kit.Estimated = kit.estimate("Accuracy", "%", "accuracy on noisy images")
    drop: kit.Estimated = kit.estimate(
        "Accuracy drop", kit.POINTS, "without noise minus with noise"
    )
    mean_drop: kit.Number = _mean_of(
        "frequency bands", "How much does noise in one frequency band reduce accuracy?", ""
    )
    high_drop: kit.Number = _mean_of(
        _ABOVE, "How much does high-frequency noise reduce accuracy?"
    )
    low_drop: kit.Number = _mean_of(
        _BELOW, "How much does low-frequency noise reduce accuracy?"
    )
    contrast: kit.Number = kit.estimate(
        "High minus low",
        kit.POINTS,
        "mean drop of high minus low bands",
        default=nan,
        keep=True,
    )
    clean_accuracy: float = kit.scalar(
        "Clean accuracy", "", "accuracy without noise", default=nan
    )
    width: float = kit.scalar("Band width", "π rad/pixel", "of each band", default=BAND_WIDTH)
    left_out: str = kit.scalar(
        "Empty bands", "", "bands without any frequency of images this small", default=""
    )
    classes: int = kit.scalar("Classes", "", "number of classes of the model", default=0)

    def sentences(self) -> Iterator[str | kit.Finding]:
        """Largest drop over bands, named as a maximum."""
        same = np.allclose(self.rms, self.rms[0], rtol=0.01)
        yield drops_text(
            f"noise of RMS {self.rms[0]:.3g} in each band" if same else "the paper's noise",
            self.drop,
            self.clean_accuracy,
            "bands",
            self.images_text,
            lambda row: f"{self.frequency[row]:.3g} π rad/pixel",
        )
        yield from chance_findings(self.clean_accuracy, self.provenance, self.classes)


@kit.result("frequency-contrasts", "High against low frequencies", figures={})
class FrequencyContrasts(kit.Result):
    """Accuracy drop at high minus low frequencies; one row for each kind of noise.

    The mean accuracy drop at high minus low frequencies. The paper claims that attention
    models are robust to high frequencies and convolutional models to low ones. Its noise is
    stronger at high frequencies.

    The paper's noise is stronger at high frequencies, so that what holds only for it is a
    statement about the strength of the noise.
    """

    row_names: ClassVar[tuple[str, ...]] = ("noise",)

    noise: kit.Texts = kit.column("Noise", "", "'equal energy' in each band, or 'paper'")
    contrast: kit.Estimated = kit.estimate(
        f"difference of accuracy drops, {_ABOVE} minus bands below",
        kit.POINTS,
        asks="Is the model more sensitive to high- or to low-frequency noise?",
        in_pixels=True,
    )

    def reading(self, name: str, row: int) -> dict[str, Any]:
        """Which frequencies cost more accuracy."""
        contrast = self.contrast[row]
        words = "not significant" if np.isfinite(contrast.low) else ""
        if contrast.low > 0:
            words = "high frequencies cost more accuracy"
        elif contrast.high < 0:
            words = "low frequencies cost more accuracy"
        return {"reading": words}


@kit.analysis
class FrequencyNoise(PerturbedAccuracy):
    """Accuracy drop under noise of each frequency band."""

    name = "frequency-noise"
    group = "robustness"
    images = kit.Sizes(fewest=16, quick=128, standard=512)
    source = "Park & Kim (2022), fig. 2b; equal energy as in Yin et al. (2019)"
    claims = ("C7",)
    passes = 1.5
    gives = (
        BandAccuracy,
        FrequencyContrasts,
    )

    frequencies: tuple[float, ...] = kit.option(
        BAND_CENTERS,
        "centers of the bands in π rad/pixel",
        minimum=0,
        maximum=1,
        quick=BAND_CENTERS[::2],
    )
    rms: float = kit.option(
        0.1, "root mean square of the noise, for pixel values in [0, 1]", above=0
    )
    protocol: Literal["default", "paper", "both"] = kit.option(
        "default",
        "noise with equal energy in each band (default), noise as in the code of Park & Kim "
        "(2022) (paper), or both",
    )
    paper_amplitude: float = kit.option(
        PAPER_AMPLITUDE,
        "amplitude of the paper protocol, in units of normalized pixel values; used only with "
        "paper or both",
        above=0,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        low, high = min(self.frequencies, default=SPLIT), max(self.frequencies, default=SPLIT)
        if self.protocol == "both" and not low < SPLIT < high:
            raise kit.InputError(
                f"frequencies must lie on both sides of {SPLIT} for the comparison of both "
                f"protocols, got {low:g} to {high:g}"
            )

    def used(self) -> Mapping[str, tuple[object, str]]:
        """What belongs to one of the protocols."""
        default = self.protocol != "paper", "protocol default or both"
        paper = self.protocol != "default", "protocol paper or both"
        return {"rms": default, "paper_amplitude": paper}

    def conditions(self, size: tuple[int, int]) -> Sequence[Condition]:
        """Each band under each protocol."""
        protocols = ("default", "paper") if self.protocol == "both" else (self.protocol,)
        return list(product(protocols, self.frequencies))

    def change(
        self,
        pixels: perturbed.Pixels,
        condition: Condition,
        indices: range,
        seed: int,
        space: perturbed.PixelSpace,
    ) -> perturbed.Pixels:
        """The pixels with noise of one band."""
        protocol, center = condition
        size = (pixels.shape[-2], pixels.shape[-1])
        white = white_noise(pixels, seed, indices)
        if protocol == "paper":
            signs = filtered(white.sign(), paper_band(size, center))
            return pixels + space.in_pixels(self.paper_amplitude * signs)
        noise = filtered(white, band(size, center))
        return pixels + with_rms(noise, self.rms)

    def results(
        self, outcomes: perturbed.Paired, conditions: Sequence[Condition], subject: kit.Subject
    ) -> Sequence[kit.Result]:
        """The bands of the first protocol, and the contrast under each, if both sides are."""
        if not outcomes.rms.any():
            raise kit.InputError(
                "frequencies must include a band that holds frequencies of these images, got "
                "none. Use other bands or larger images."
            )
        bands = len(self.frequencies)
        results = [
            self._bands(outcomes, np.arange(n, n + bands), conditions[n][0])
            for n in range(0, len(conditions), bands)
        ]
        first, contrasts = results[0], [result.contrast for result in results]
        if np.isnan(contrasts).any():
            return (first,)
        joint = FrequencyContrasts(
            noise=np.array(
                [PAPER if r.provenance.protocol == "paper" else EQUAL_ENERGY for r in results]
            ),
            contrast=kit.mean(
                np.stack([np.asarray(c.by_unit) for c in contrasts], axis=1), estimated.skewed
            ),
        )
        return first, joint

    def _bands(
        self, outcomes: perturbed.Paired, rows: np.ndarray, protocol: str
    ) -> BandAccuracy:
        strength, centers = outcomes.rms[rows], np.array(self.frequencies, dtype=float)
        filled, frequency = rows[strength > 0], centers[strength > 0]
        fall, correct = outcomes.drops[:, filled], outcomes.correct[:, 1:][:, filled]
        every, high, low = frequency >= 0, frequency > SPLIT, frequency < SPLIT

        def over(bands: np.ndarray) -> kit.Number:
            if not bands.any():
                return kit.Number(nan)
            interval = estimated.skewed if bands.sum() > 1 else estimated.paired_proportion
            return kit.mean(fall[:, bands].mean(1), interval)

        contrast = kit.Number(nan)
        if high.any() and low.any():
            contrast = kit.mean(fall[:, high].mean(1) - fall[:, low].mean(1), estimated.skewed)
        result = BandAccuracy(
            frequency=frequency,
            rms=strength[strength > 0],
            accuracy=kit.mean(correct, estimated.proportion),
            drop=kit.mean(fall, estimated.paired_proportion),
            mean_drop=over(every),
            high_drop=over(high),
            low_drop=over(low),
            contrast=contrast,
            clean_accuracy=outcomes.accuracy,
            left_out=", ".join(f"{f:g}π" for f in centers[strength == 0]),
            classes=outcomes.classes,
        )
        return replace(result, provenance=replace(result.provenance, protocol=protocol))


def white_noise(
    like: Float[Tensor, "b c h w"], seed: int, indices: range
) -> Float[Tensor, "b c h w"]:
    """Gaussian noise of each image, from the seed and the index of the image."""
    return perturbed.random_numbers(
        torch.randn, like.shape[1:], indices, seed, "frequency noise"
    ).to(like)
