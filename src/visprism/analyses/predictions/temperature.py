"""Temperature scaling: one divisor of the logits that makes the likelihood highest.

Source: Guo et al. (2017), On calibration of modern neural networks, sec. 4.2.
"""

from collections.abc import Iterator
from dataclasses import replace
from math import nan

import numpy as np
import torch
from jaxtyping import Float

from visprism import kit
from visprism.core.statistics import t_quantile
from visprism.estimates.answers import Answer, few_outcomes
from visprism.estimates.calibration_error import calibration_error
from visprism.estimates.estimated import mean, skewed
from visprism.estimates.text import missing_text, text_of
from visprism.passes.outcomes import outcomes
from visprism.passes.predictions import Predictions

_ROWS = 4096  # images of a block
_WIDEST = np.log(1e4)  # bound of |log T|
_STEP = 1e-4  # of log T, for the second derivative


@kit.result("temperature", "Temperature scaling", figures={})
class TemperatureScaling(kit.Result):
    """A temperature, and its effect on images that it was not fitted on.

    Logits divided by the temperature have the highest likelihood. The effect is measured on
    images that the temperature is not fitted on. The remaining calibration error does not
    come from the scale of the logits.
    """

    temperature: kit.Number = kit.estimate(
        "temperature",
        "",
        "divisor of the logits; above 1 for an overconfident model",
        asks="Which temperature calibrates the model?",
        comparison="none",
    )
    folds: int = kit.scalar("Folds", "", "of the cross-fitted effect", default=0)
    nll_before: float = kit.scalar("NLL before", "nats", "of these images", default=nan)
    nll_after: float = kit.scalar("NLL after", "nats", "of these images", default=nan)
    nll_change: kit.Number = kit.estimate(
        "Change of NLL", "nats", "after minus before", default=nan
    )
    ece_before: float = kit.scalar("ECE before", "", "of these images", default=nan)
    ece_after: float = kit.scalar("ECE after", "", "of these images", default=nan)
    debiased_before: kit.Number = kit.estimate(
        "Debiased ECE before", "%", "of the model", default=nan
    )
    debiased_after: kit.Number = kit.estimate(
        "debiased ECE after temperature scaling",
        "%",
        asks="How well is the model calibrated after temperature scaling?",
        comparison="none",
        default=nan,
    )
    reason: str = kit.scalar("Reason", "", "why there is no temperature", default="")

    def sentences(self) -> Iterator[str | kit.Finding]:
        """The temperature with its effect on NLL and ECE."""
        if self.reason:
            yield f"no temperature: {self.reason.rstrip('.')}"
            return
        images = self.images_text
        change = self.nll_change
        significant = change.low > 0 or change.high < 0 or np.isnan(change.low)
        yield (
            f"temperature {text_of(self.temperature)}{self._direction()}, cross-fitted on "
            f"{images}"
        )
        yield (
            f"temperature scaling changes NLL from {self.nll_before:.3g} to "
            f"{self.nll_after:.3g} ({text_of(change)}"
            f"{'' if significant else ', not significant'}{missing_text(change)}) and "
            f"ECE from {self.ece_before:.1%} to {self.ece_after:.1%}"
        )
        before, after = self.debiased_before, self.debiased_after
        words = missing_text(after) or ", not significant"
        if after.low > 0:
            words = ": a significant error remains that scaling does not correct"
        error, scaled = text_of(before, ".1%"), text_of(after, ".1%")
        yield f"debiased ECE {error}, after scaling {scaled}{words}"

    def answers(self) -> tuple[Answer, ...]:
        """The temperature, and the debiased ECE of the scaled logits."""
        return () if self.reason else super().answers()

    def _direction(self) -> str:
        """Whether the logits are too large or too small, where the interval excludes 1."""
        if self.temperature.low > 1:
            return ": the logits are too large (overconfident)"
        if self.temperature.high < 1:
            return ": the logits are too small (underconfident)"
        if np.isnan(self.temperature.low):
            return missing_text(self.temperature)
        return ": not significantly different from 1"


def temperature(
    predictions: Predictions, *, folds: int = 2, seed: int = 0
) -> tuple[TemperatureScaling, Predictions]:
    """The temperature T that minimizes the NLL of softmax(logits / T), and its effect.

    T is fitted on all images. Its effect is cross-fitted: the images are divided into random
    folds, and the logits of each fold are divided by the temperature that is fitted on the
    other folds, so that no image is scaled by a temperature that its target has influenced.
    What temperature scaling removes is an error of the scale of the logits; what remains of the
    ECE is not.

    With b = 1 / T, the root of the derivative of the NLL by b is computed in float64; the NLL
    is convex in b and has one minimum. The interval of T is exp(log T ± t s) with
    s the standard error of log T from the variance of the derivative over images, and t the
    quantile of Student's t; there is none for fewer than 5 correct or 5 wrong predictions.
    Costs about 15 passes over the logits for all images and for each fold.

    Args:
        predictions: of a data set.
        folds: number of folds, of equal size but for one image.
        seed: of the random folds.

    Returns:
        The temperature with its effect, and the scaled predictions of all images.
    """
    images = len(predictions)
    if not 2 <= folds <= images:
        raise kit.InputError(f"folds must be between 2 and {images} (images), got {folds}")
    best = _best(predictions)
    error = _log_error(predictions, 1 / best)
    order = torch.randperm(images, generator=kit.stream(seed, "temperature"))
    divisors = torch.empty(images)
    for rows in order.tensor_split(folds):
        others = torch.ones(images, dtype=torch.bool)
        others[rows] = False
        divisors[rows] = _best(predictions.subset(torch.nonzero(others)[:, 0]))
    scaled = Predictions(
        predictions.logits.float() / divisors[:, None],
        predictions.targets,
        predictions.provenance,
    )
    before, after = outcomes(predictions), outcomes(scaled)
    errors = [calibration_error(o.confidence, o.correct.astype(bool)) for o in (before, after)]
    few = few_outcomes(before.correct.astype(bool))
    half = nan if few else t_quantile(images) * error
    change = mean(after.nll - before.nll, skewed)
    result = TemperatureScaling(
        temperature=kit.Number(best, best * np.exp(-half), best * np.exp(half), missing=few),
        folds=folds,
        nll_before=float(before.nll.mean()),
        nll_after=float(after.nll.mean()),
        nll_change=kit.Number(float(change), missing=few) if few else change,
        ece_before=errors[0].value,
        ece_after=errors[1].value,
        debiased_before=errors[0].debiased,
        debiased_after=errors[1].debiased,
        provenance=replace(predictions.provenance, images=images, seed=seed),
    )
    return result, scaled


def temperature_if_finite(predictions: Predictions, *, seed: int = 0) -> TemperatureScaling:
    """The temperature, or the reason why there is none, such as too few wrong predictions."""
    try:
        result, _scaled = temperature(predictions, seed=seed)
    except kit.InputError as error:
        provenance = replace(predictions.provenance, images=len(predictions), seed=seed)
        return TemperatureScaling(
            temperature=kit.Number(nan), reason=str(error), provenance=provenance
        )
    return result


def _best(predictions: Predictions) -> float:
    def slope(log_inverse: float) -> float:
        return float(_slopes(predictions, float(np.exp(log_inverse))).mean())

    if predictions.logits.gather(1, predictions.targets[:, None]).isneginf().any():
        raise kit.InputError(
            "the logit of each target must be finite, got negative infinity, with which the "
            "NLL is infinite at any temperature. Measure images of classes that are not masked."
        )
    if slope(-_WIDEST) >= 0:
        raise kit.InputError(
            "logits must predict the targets better than by chance, got a likelihood that is "
            "highest at an infinite temperature. Check that the classes have the order that "
            "the model was trained with."
        )
    if slope(_WIDEST) <= 0:
        raise kit.InputError(
            f"at least one of the {len(predictions)} images on which the temperature is fitted "
            "must be classified incorrectly: without an error the likelihood grows as the "
            "temperature falls to 0. Use more images."
        )
    from scipy.optimize import brentq  # SciPy takes a while to import

    root: float = brentq(slope, -_WIDEST, _WIDEST, xtol=1e-9)  # pyrefly: ignore
    return float(np.exp(-root))


def _log_error(predictions: Predictions, inverse: float) -> float:
    """Standard error of the logarithm of the temperature; NaN for a single image.

    With s_i the derivative of the NLL of image i by b, and H the derivative of their mean, the
    variance of b is var(s) / (n H^2).
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

    It is E_p[l] - l_t with p = softmax(b l).
    """
    parts = []
    for logits, targets in zip(
        predictions.logits.split(_ROWS), predictions.targets.split(_ROWS), strict=True
    ):
        exact = logits.double()
        gap = exact - exact.amax(1, keepdim=True)
        # A class with logit -infinity has probability 0 and adds nothing.
        mean = ((inverse * gap).softmax(1) * gap).nan_to_num(0.0).sum(1)
        parts.append(mean - gap.gather(1, targets[:, None])[:, 0])
    return torch.cat(parts).numpy()
