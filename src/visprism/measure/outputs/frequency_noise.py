"""Frequency noise: accuracy under noise confined to one band of frequencies.

Source: Park and Kim (2022), How do vision transformers work?, fig. 2b.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from visprism.analyses.predictions.frequency_noise import CONTRAST, FrequencyContrasts
from visprism.anatomy import Anatomy
from visprism.core.errors import InputError
from visprism.core.processes import add_up
from visprism.core.run import DEFAULT_RUN, Run, stream
from visprism.core.statistics import mean_interval
from visprism.measure.outputs.bands import BAND_CENTERS, band, check_band, check_band_shape, filtered, paper_band, with_rms
from visprism.passes.batches import Batch
from visprism.passes.paired import Paired
from visprism.passes.perturbed_evaluation import evaluate_perturbed
from visprism.passes.pixel_space import PixelSpace
from visprism.passes.predictions import Predictions
from visprism.results.frequency_contrasts import contrast_name, frequency_contrasts
from visprism.results.per_image import PerImage
from visprism.results.perturbations import (
    HIGH_ACCURACY,
    HIGH_DROP,
    LOW_ACCURACY,
    LOW_DROP,
    MEAN_DROP,
    SPLIT_FREQUENCY,
    FrequencyRobustness,
)
from visprism.table.result import Result

RMS = 0.1  # in pixels of 0 ... 1
PAPER_AMPLITUDE = 0.7  # that Park and Kim state for their figure; their code has 0.007


def frequency_noise(
    model: nn.Module,
    batches: Iterable[Batch],
    *,
    mean: Sequence[float],
    std: Sequence[float],
    frequencies: Sequence[float] = BAND_CENTERS,
    rms: float = RMS,
    band_shape: str = "square",
    protocol: str = "default",
    paper_amplitude: float = PAPER_AMPLITUDE,
    clean: Predictions | None = None,
    run: Run = DEFAULT_RUN,
) -> tuple[FrequencyRobustness, PerImage]:
    """Accuracy drop under noise of each frequency band, paired by image.

    x' = x + n_f, with n_f the part of Gaussian white noise whose frequency lies in a band about
    f, scaled for each image to the root mean square `rms`: equal energy in every band. Pixels
    are not clipped, which would move noise to other bands. The noise of an image depends on the
    seed and the index of the image alone.

    ``protocol="paper"`` adds noise a sign(g) of amplitude a, in a band, to the normalized
    images, without scaling. A band at a higher frequency holds more frequencies, so that noise
    is stronger there: its RMS grows about fourfold from 0.05 to 0.75 π rad/pixel.

    Costs one forward pass per band and one without noise.

    Args:
        model: in evaluation mode.
        batches: each is (images, targets), all of one size but the last.
        mean: of the normalization, by channel.
        std: of the normalization, by channel.
        frequencies: centers of the bands in π rad/pixel.
        rms: root mean square of the noise, in pixels of 0 ... 1.
        band_shape: "square" or "round".
        protocol: "default" or "paper".
        paper_amplitude: amplitude of the paper's noise, in normalized images.
        clean: predictions of the same images, where they exist already.
        run: device, precision, seed of the noise, and progress.

    Returns:
        One row per band, and the accuracy drop of each image: by band, its mean over bands, and
        that of bands above 0.5 π rad/pixel minus bands below.

    Source: Park and Kim (2022), fig. 2b; equal energy as in Yin et al. (2019), A Fourier
    perspective on model robustness in computer vision.
    """
    _check(frequencies, rms, band_shape, protocol, paper_amplitude)
    space = PixelSpace(mean, std)
    power = torch.zeros(len(frequencies), 2, dtype=torch.float64)  # sum of squares, and number

    def perturb(condition: int, pixels: Tensor, _targets: Tensor, indices: range) -> Tensor:
        size = (pixels.shape[-2], pixels.shape[-1])
        white = white_noise(pixels, run.seed, indices)
        if protocol == "paper":
            mask = paper_band(size, frequencies[condition])
            noise = space.in_pixels(paper_amplitude * filtered(white.sign(), mask))
        else:
            mask = band(size, frequencies[condition], band_shape=band_shape)
            noise = with_rms(filtered(white, mask), rms)
        power[condition, 0] += noise.double().square().sum().cpu()
        power[condition, 1] += noise.numel()
        return pixels + noise

    paired, provenance = evaluate_perturbed(
        model, batches, space, len(frequencies), perturb, clean=clean, run=run
    )
    power = add_up(power)
    strength = (power[:, 0] / power[:, 1]).sqrt().numpy()
    if not strength.any():
        height, width = provenance.image_shape[1:]
        raise InputError(
            "frequencies must include a band that holds frequencies of "
            f"{height}x{width} images, got none. Use other bands or larger images."
        )
    return _results(
        np.array(frequencies, dtype=float),
        strength,
        paired,
        band_shape="paper's" if protocol == "paper" else band_shape,
        run=replace(run, provenance=replace(provenance, protocol=protocol)),
    )


def _check(
    frequencies: Sequence[float],
    rms: float,
    band_shape: str,
    protocol: str,
    paper_amplitude: float,
) -> None:
    if protocol not in ("default", "paper"):
        raise InputError(f"protocol must be 'default' or 'paper', got {protocol!r}")
    for name, value in (("rms", rms), ("paper_amplitude", paper_amplitude)):
        if not 0 < value < inf:
            raise InputError(f"{name} must be finite and positive, got {value}")
    for frequency in frequencies:
        check_band(frequency)
    check_band_shape(band_shape)
    if protocol == "paper" and band_shape != "square":
        raise InputError(
            f"band_shape must be 'square' for the paper's protocol, got {band_shape!r}"
        )
    if not len(frequencies):
        raise InputError("frequencies must hold at least one band center, got none")


def _results(
    frequencies: Float[np.ndarray, " bands"],
    strength: Float[np.ndarray, " bands"],
    paired: Paired,
    *,
    band_shape: str,
    run: Run,
) -> tuple[FrequencyRobustness, PerImage]:
    """The rows of bands that hold frequencies, and the values of each image."""
    filled = strength > 0
    drops = (paired.correct[:, :1] - paired.correct[:, 1:])[:, filled]
    centers = frequencies[filled]
    per_image = {
        f"accuracy drop, noise at {center:.3g} π rad/pixel": drops[:, i]
        for i, center in enumerate(centers)
    }
    high, low = centers > SPLIT_FREQUENCY, centers < SPLIT_FREQUENCY
    every = np.ones(len(centers), dtype=bool)
    means = {
        name: drops[:, bands].mean(1)
        for name, bands in ((MEAN_DROP, every), (HIGH_DROP, high), (LOW_DROP, low))
        if bands.any()
    }
    correct = paired.correct[:, 1:][:, filled]
    accuracies = {
        name: correct[:, bands].mean(1)
        for name, bands in ((HIGH_ACCURACY, high), (LOW_ACCURACY, low))
        if bands.any()
    }
    per_image |= means | accuracies
    contrast, contrast_ends = np.nan, (np.nan, np.nan)
    if high.any() and low.any():
        values = means[HIGH_DROP] - means[LOW_DROP]
        per_image[CONTRAST] = values
        contrast, contrast_ends = float(values.mean()), mean_interval(values)
    columns = paired.columns()
    columns.pop("drop_error")
    columns["drop_low"], columns["drop_high"] = lows, highs = paired.drop_intervals()
    of_bands = [
        _interval_of(drops[:, bands], lows[filled][bands], highs[filled][bands])
        for bands in (every, high, low)
    ]
    (mean_low, mean_high), (high_low, high_high), (low_low, low_high) = of_bands
    ends = {name: mean_interval(values) for name, values in accuracies.items()}
    (above_low, above_high), (below_low, below_high) = (
        ends.get(name, (np.nan, np.nan)) for name in (HIGH_ACCURACY, LOW_ACCURACY)
    )
    rows = FrequencyRobustness(
        frequency=frequencies,
        rms=strength,
        **columns,
        clean_accuracy=paired.accuracy,
        clean_nll=paired.nll,
        classes=paired.classes,
        contrast=contrast,
        contrast_low=contrast_ends[0],
        contrast_high=contrast_ends[1],
        mean_drop_low=mean_low,
        mean_drop_high=mean_high,
        high_drop_low=high_low,
        high_drop_high=high_high,
        low_drop_low=low_low,
        low_drop_high=low_high,
        high_accuracy_low=above_low,
        high_accuracy_high=above_high,
        low_accuracy_low=below_low,
        low_accuracy_high=below_high,
        band_shape=band_shape,
        left_out=", ".join(f"{f:g}π" for f in frequencies[~filled]),
        provenance=run.provenance,
    )
    images = PerImage(
        quantity=np.repeat(list(per_image), paired.images),
        image=np.tile(paired.indices, len(per_image)),
        value=np.concatenate(list(per_image.values())),
        provenance=run.provenance,
    )
    return rows.select(filled), images


def _interval_of(drops: np.ndarray, lows: np.ndarray, highs: np.ndarray) -> tuple[float, float]:
    """The interval of the mean over bands; of a single band its own, and of none NaN."""
    if len(lows) > 1:
        return mean_interval(drops.mean(1))
    return (float(lows[0]), float(highs[0])) if len(lows) else (np.nan, np.nan)


def noise_contrasts(
    anatomy: Anatomy,
    batches: Iterable[Batch],
    *,
    protocol: str = "default",
    run: Run = DEFAULT_RUN,
    **options: Any,
) -> tuple[Result, ...]:
    """The accuracy drops of `frequency_noise`, and the contrast of high and low frequencies.

    Args:
        anatomy: of the model, whose blocks decide what claim C7 expects of it.
        batches: each is (images, targets), read once for each protocol.
        protocol: "default", "paper", or "both", which measures both and puts their contrasts
            side by side; the accuracy drops are then those of the default.
        run: as for `frequency_noise`.
        **options: of `frequency_noise`.

    Returns:
        The accuracy drops, the contrasts if there are bands of both sides, and the values of
        single images.
    """
    protocols = ("default", "paper") if protocol == "both" else (protocol,)
    measured = [
        frequency_noise(anatomy.model, batches, protocol=name, run=run, **options)
        for name in protocols
    ]
    results = [replace(rows, mixing=_mixing(anatomy)) for rows, _ in measured]
    contrasts: tuple[FrequencyContrasts, ...] = ()
    if all(np.isfinite(rows.contrast) for rows in results):
        contrasts = (frequency_contrasts(results),)
    return (results[0], *contrasts, _united([images for _, images in measured]))


def _mixing(anatomy: Anatomy) -> str:
    """Kind of the blocks that mix positions, "attention" or "conv"; "" for as many of both."""
    kinds = [block.kind for block in anatomy.blocks]
    attention = sum(kind in ("attention", "attention+mlp") for kind in kinds)
    conv = kinds.count("conv")
    return "" if attention == conv else "attention" if attention > conv else "conv"


def _united(parts: Sequence[PerImage]) -> PerImage:
    """Values of single images of both protocols; of the paper's beside another the contrast."""
    first, *others = parts
    by_protocol = [first, *(part.select(part.quantity == CONTRAST) for part in others)]
    names = [
        first.quantity,
        *(np.full(len(p), contrast_name("paper")) for p in by_protocol[1:]),
    ]
    if first.provenance.protocol == "paper":
        names[0] = np.where(first.quantity == CONTRAST, contrast_name("paper"), names[0])
    return PerImage(
        quantity=np.concatenate(names),
        image=np.concatenate([part.image for part in by_protocol]),
        value=np.concatenate([part.value for part in by_protocol]),
        provenance=first.provenance,
    )


def white_noise(
    like: Float[Tensor, "b c h w"], seed: int, indices: range
) -> Float[Tensor, "b c h w"]:
    """Gaussian noise of each image, from the seed and the index of the image."""
    noise = [
        torch.randn(like.shape[1:], generator=stream(seed, "frequency noise", index))
        for index in indices
    ]
    return torch.stack(noise).to(like)
