"""Temperature scaling: one divisor of the logits that makes the likelihood highest.

Source: Guo et al. (2017), On calibration of modern neural networks, sec. 4.2.
"""

from dataclasses import replace
from math import nan

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import brentq
from torch import Tensor

from visprism.core.errors import InputError
from visprism.core.rng import stream
from visprism.core.statistics import NORMAL_95, mean_interval
from visprism.measure.outputs.outcomes import outcomes
from visprism.measure.outputs.predictions import Predictions
from visprism.results.calibration import Temperature
from visprism.results.calibration_error import calibration_error

_ROWS = 4096  # images of a block
_WIDEST = np.log(1e4)  # bound of |log T|
_STEP = 1e-4  # of log T, for the second derivative


def temperature(
    predictions: Predictions, *, fitted_fraction: float = 0.5, seed: int = 0
) -> tuple[Temperature, Predictions]:
    """The temperature T that minimizes the NLL of softmax(logits / T), and its effect.

    T is fitted on a random part of the images, its effect is measured on the others. With
    b = 1 / T, the root of the derivative of the NLL by b is computed in float64; for one pass
    the NLL is convex in b and has one minimum. The interval of T is exp(log T ± 1.96 s) with s
    the standard error of log T from the variance of the derivative over images. Costs about 15
    passes over the logits of the fitted part.

    Args:
        predictions: of one pass or several; each is divided by the same T.
        fitted_fraction: fraction of the images that T is fitted on.
        seed: of the random choice of these images.

    Returns:
        The temperature with its effect on the other images, and their scaled predictions.

    Raises:
        InputError: if the fraction leaves a part empty, or no finite temperature is best.
    """
    images = len(predictions)
    number = round(fitted_fraction * images)
    if not 0 < number < images:
        raise InputError(
            "fitted_fraction must leave at least one image to fit on and one to measure, got "
            f"{fitted_fraction} of {images} images"
        )
    order = torch.randperm(images, generator=stream(seed, "temperature"))
    fitted = predictions.subset(order[:number])
    rest = predictions.subset(order[number:].sort()[0])
    best = _best(fitted)
    error = _log_error(fitted, 1 / best)
    scaled = Predictions(rest.logits.float() / best, rest.targets, rest.provenance)
    before, after = outcomes(rest), outcomes(scaled)
    low, high = mean_interval(after.nll - before.nll)
    ece_before, ece_after = (
        calibration_error(result.confidence, result.correct).value for result in (before, after)
    )
    result = Temperature(
        temperature=best,
        temperature_low=float(best * np.exp(-NORMAL_95 * error)),
        temperature_high=float(best * np.exp(NORMAL_95 * error)),
        fitted_images=number,
        images=len(rest),
        nll_before=float(before.nll.mean()),
        nll_after=float(after.nll.mean()),
        nll_change=float((after.nll - before.nll).mean()),
        nll_change_low=low,
        nll_change_high=high,
        ece_before=ece_before,
        ece_after=ece_after,
        provenance=replace(predictions.provenance, seed=seed),
    )
    return result, scaled


def _best(predictions: Predictions) -> float:
    def slope(log_inverse: float) -> float:
        return float(_slopes(predictions, float(np.exp(log_inverse))).mean())

    if slope(-_WIDEST) >= 0:
        raise InputError(
            "logits must predict the targets better than by chance, got a likelihood that is "
            "highest at an infinite temperature. Check that the classes have the order that "
            "the model was trained with."
        )
    if slope(_WIDEST) <= 0:
        raise InputError(
            f"at least one of the {len(predictions)} images that the temperature is fitted on "
            "must be classified incorrectly, got a likelihood that is highest at temperature 0."
            " Use more images."
        )
    root: float = brentq(slope, -_WIDEST, _WIDEST, xtol=1e-9)  # pyrefly: ignore
    return float(np.exp(-root))


def _log_error(predictions: Predictions, inverse: float) -> float:
    """Standard error of the logarithm of the temperature; NaN for a single image.

    With s_i the derivative of the NLL of image i by b, and H that of their mean, the variance
    of b is var(s) / (n H^2).
    """
    if len(predictions) < 2:
        return nan
    slopes = _slopes(predictions, inverse)
    above, below = (
        _slopes(predictions, inverse * float(np.exp(step))).mean() for step in (_STEP, -_STEP)
    )
    curvature = (above - below) / (2 * _STEP)  # by log b, which is b times that by b
    return float(slopes.std(ddof=1) / np.sqrt(len(slopes)) / abs(curvature))


def _slopes(predictions: Predictions, inverse: float) -> Float[np.ndarray, " n"]:
    """Derivative of the NLL of each image by the inverse temperature b.

    For one pass it is E_p[l] - l_t with p = softmax(b l); for several the mean of that, each
    weighted by its share of the probability of the target.
    """
    parts = []
    for members, targets in zip(
        predictions.members.split(_ROWS, dim=1), predictions.targets.split(_ROWS), strict=True
    ):
        gap = _below_highest(members)
        at = targets.expand(len(members), -1)[..., None]
        log_p = (inverse * gap).log_softmax(-1)
        target_gap, target_log_p = (x.gather(2, at)[..., 0] for x in (gap, log_p))
        # A class with logit -infinity has probability 0 and adds nothing.
        mean = (log_p.exp() * gap).nan_to_num(0.0).sum(-1)
        parts.append((target_log_p.softmax(0) * (mean - target_gap)).sum(0))
    return torch.cat(parts).numpy()


def _below_highest(members: Float[Tensor, "s b k"]) -> Float[Tensor, "s b k"]:
    exact = members.double()
    return exact - exact.amax(-1, keepdim=True)
