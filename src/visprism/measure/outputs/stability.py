"""Stability: whether predictions stay the same along sequences of slightly changed images.

Source: Hendrycks and Dietterich (2019), Benchmarking neural network robustness to common
corruptions and perturbations, sec. 4.2.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from math import nan

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from visprism.analyses.predictions.stability import Stability
from visprism.core.errors import InputError
from visprism.core.run import DEFAULT_RUN, Run
from visprism.core.statistics import mean_interval
from visprism.passes.outcomes import outcomes
from visprism.passes.predict import predict
from visprism.results.per_image import PerImage

Frames = Tensor  # (images, frames, C, H, W)


def stability(
    model: nn.Module | Sequence[nn.Module],
    sequences: Mapping[str, Iterable[Frames]],
    *,
    run: Run = DEFAULT_RUN,
) -> tuple[Stability, PerImage]:
    """Flip rate and consistency for each perturbation.

    The flip rate is the fraction of frames with another prediction than their reference frame:
    the frame before, or the first one in perturbations whose name contains "noise", where each
    frame has new noise and the first is clean. Intervals are over images. Without any flip
    among n images the upper end is 1 - 0.025^(1/n), Clopper and Pearson's for a fraction.

    Args:
        model: in evaluation mode; or several, an ensemble.
        sequences: for each perturbation batches of frames (images, frames, C, H, W).
        run: device, precision and progress.

    Returns:
        The flip rates, and the flip rate of each image as the mean over perturbations; the
        latter is empty unless all perturbations have as many images.

    Source: Hendrycks and Dietterich (2019), eq. 2.
    """
    if not sequences:
        raise InputError("sequences must hold at least one perturbation, got none")
    silent = replace(run, progress=None)
    frames: list[int] = []
    flips: list[Float[np.ndarray, " n"]] = []  # flip rate of each image, by perturbation
    consistency: list[float] = []
    provenance = run.provenance
    for name in run.track(list(sequences), "perturbations"):
        batches = _checked(sequences[name])
        first = next(batches, None)
        if first is None:
            raise InputError(f"sequences of {name!r} must hold at least one image, got none")
        number = first.shape[1]
        predictions = predict(model, _flat(chain([first], batches), number), run=silent)
        classes = outcomes(predictions).predicted.reshape(-1, number)
        reference = classes[:, :1] if "noise" in name else classes[:, :-1]
        frames.append(number)
        flips.append((classes[:, 1:] != reference).mean(1))
        consistency.append(float((classes[:, 1:] == classes[:, :-1]).mean()))
        provenance = replace(predictions.provenance, images=len(classes))
    intervals = np.array([_interval(rates) for rates in flips])
    per_image, ends = _mean_over_perturbations(flips)
    rates = np.array([values.mean() for values in flips])
    return (
        Stability(
            perturbation=np.array(list(sequences)),
            frames=np.array(frames),
            flip_rate=rates,
            flip_low=intervals[:, 0],
            flip_high=intervals[:, 1],
            consistency=np.array(consistency),
            mean_flip_rate=float(rates.mean()),
            mean_flip_low=ends[0],
            mean_flip_high=ends[1],
            provenance=provenance,
        ),
        replace(per_image, provenance=provenance),
    )


def _checked(batches: Iterable[Frames]) -> Iterator[Frames]:
    for frames in batches:
        if not isinstance(frames, Tensor) or frames.ndim != 5 or frames.shape[1] < 2:
            got = tuple(frames.shape) if isinstance(frames, Tensor) else type(frames).__name__
            raise InputError(
                "sequences must be frames (images, frames, C, H, W), at least two of each "
                f"image, got {got}"
            )
        yield frames


def _flat(batches: Iterable[Frames], number: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Frames as images, with targets that do not matter."""
    for frames in batches:
        if frames.shape[1] != number:
            raise InputError(
                f"sequences must have one number of frames, got {number} and {frames.shape[1]}"
            )
        images = frames.flatten(0, 1)
        yield images, torch.zeros(len(images), dtype=torch.long)


def _mean_over_perturbations(
    flips: Sequence[Float[np.ndarray, " _"]],
) -> tuple[PerImage, tuple[float, float]]:
    if len({len(rates) for rates in flips}) > 1:
        empty = np.array([], dtype=np.float64)
        none = PerImage(quantity=empty.astype(str), image=empty.astype(int), value=empty)
        return none, (nan, nan)
    means = np.mean(flips, axis=0)
    per_image = PerImage(
        quantity=np.full(len(means), "flip rate"), image=np.arange(len(means)), value=means
    )
    return per_image, _interval(means)


def _interval(rates: Float[np.ndarray, " n"]) -> tuple[float, float]:
    """The 95% interval of a mean of fractions over images.

    NaN where fewer than 5 images have flips, or do not differ from the median.
    """
    if not rates.any():
        return 0.0, float(1 - 0.025 ** (1 / len(rates)))
    low, high = mean_interval(rates)
    return tuple(np.clip((low, high), 0.0, 1.0).tolist())
