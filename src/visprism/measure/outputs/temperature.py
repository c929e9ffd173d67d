"""Temperature scaling: one number that makes a model's confidence right on average.

Source: Guo et al. (2017), On calibration of modern neural networks, sec. 4.2.
"""

from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import brentq
from torch import Tensor

from visprism.core.errors import InputError
from visprism.core.rng import stream
from visprism.measure.outputs.calibration import uncertainty
from visprism.measure.outputs.outcomes import outcomes
from visprism.measure.outputs.predictions import Predictions
from visprism.results.base import Result, result_type, scalar

_ROWS = 4096  # that are looked at together
_WIDEST = np.log(1e4)  # of log T, either way


@result_type("temperature")
class Temperature(Result):
    """A temperature, and what it does to images that it was not fitted on."""

    temperature: float = scalar(
        "Temperature",
        "",
        "logits are divided by it; above 1 for an overconfident model",
        default=1.0,
    )
    fitted_images: int = scalar("Fitted images", default=0)
    images: int = scalar("Images", "", "on which the rest is measured", default=0)
    nll_before: float = scalar("NLL before", default=0.0)
    nll_after: float = scalar("NLL after", default=0.0)
    ece_before: float = scalar("ECE before", "", "in 10 bins", default=0.0)
    ece_after: float = scalar("ECE after", default=0.0)

    def sentences(self) -> list[str]:
        """What was found, with its numbers."""
        return [
            f"a temperature of {self.temperature:.3g} changes the ECE from "
            f"{self.ece_before:.1%} to {self.ece_after:.1%} and the NLL from "
            f"{self.nll_before:.3g} to {self.nll_after:.3g} on {self.images} other images"
        ]


def temperature(
    predictions: Predictions, *, held_out: float = 0.5, seed: int = 0
) -> tuple[Temperature, Predictions]:
    """The temperature T that minimises the NLL of softmax(logits / T) on a part of the images.

    The root of the NLL's derivative by 1/T is found, in float64; for one pass the NLL is convex
    in 1/T and has one minimum. Costs about 15 passes over the logits of that part.

    Args:
        predictions: of one pass or several; each is divided by the same T.
        held_out: share of the images that T is fitted on, drawn at random.
        seed: of the draw.

    Returns:
        The temperature with its effect on the other images, and their scaled predictions.

    Raises:
        InputError: if the share leaves a part empty, or no finite temperature is best.
    """
    images = len(predictions)
    number = round(held_out * images)
    if not 0 < number < images:
        raise InputError(
            f"held_out is {held_out}, which is {number} of {images} images; wants a share that "
            "leaves some to fit on and some to measure, such as 0.5"
        )
    order = torch.randperm(images, generator=stream(seed, "temperature"))
    fit, rest = predictions.subset(order[:number]), predictions.subset(order[number:].sort()[0])
    found = _best(fit)
    scaled = Predictions(rest.logits.float() / found, rest.targets, rest.provenance)
    before, after = (uncertainty(outcomes(each), resamples=0) for each in (rest, scaled))
    return (
        Temperature(
            temperature=found,
            fitted_images=number,
            images=len(rest),
            nll_before=before.of("nll"),
            nll_after=after.of("nll"),
            ece_before=before.of("ece"),
            ece_after=after.of("ece"),
            provenance=replace(predictions.provenance, seed=seed),
        ),
        scaled,
    )


def _best(predictions: Predictions) -> float:
    def slope(log_inverse: float) -> float:
        return _slope(predictions, float(np.exp(log_inverse)))

    if slope(-_WIDEST) >= 0:
        raise InputError(
            "the likelihood is best at an infinite temperature: the logits tell nothing of the "
            "targets; check that classes have the order that the model was trained with"
        )
    if slope(_WIDEST) <= 0:
        raise InputError(
            f"the likelihood is best at temperature 0: all {len(predictions)} images that it "
            "is fitted on are right; use more images, or a larger held_out"
        )
    root: float = brentq(slope, -_WIDEST, _WIDEST, xtol=1e-9)  # pyrefly: ignore
    return float(np.exp(-root))


def _slope(predictions: Predictions, inverse: float) -> float:
    """Derivative of the mean NLL by the inverse temperature b.

    Of one pass it is E_p[l] - l_t with p = softmax(b l); of several the mean of that, each
    weighted by its share of the target's probability.
    """
    total = 0.0
    for members, targets in zip(
        predictions.members.split(_ROWS, dim=1), predictions.targets.split(_ROWS), strict=True
    ):
        gap = _below_highest(members)
        at = targets.expand(len(members), -1)[..., None]
        log_p = (inverse * gap).log_softmax(-1)
        own, log_own = (x.gather(2, at)[..., 0] for x in (gap, log_p))
        # A class with -infinity has probability 0 and adds nothing.
        mean = (log_p.exp() * gap).nan_to_num(0.0).sum(-1)
        total += float((log_own.softmax(0) * (mean - own)).sum())
    return total / len(predictions)


def _below_highest(members: Float[Tensor, "s b k"]) -> Float[Tensor, "s b k"]:
    exact = members.double()
    return exact - exact.amax(-1, keepdim=True)
