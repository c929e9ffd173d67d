"""Sharpness: how much the loss rises at a small distance from a model's weights.

SAM and ASAM go along the gradient, which is a lower bound of the maximum within that distance;
the Gaussian measure averages over random directions.

Sources: Foret et al. (2021), Sharpness-aware minimization; Kwon et al. (2021), ASAM; Keskar et
al. (2017) and Andriushchenko & Flammarion (2022) on mini-batches and m-sharpness.
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from visprism.core.errors import InputError
from visprism.core.provenance import Provenance
from visprism.core.run import DEFAULT_RUN, Run, stream
from visprism.loss.objective import Objective
from visprism.results.loss import Sharpness

# Distances: for the gradient measures those with which both papers train CIFAR networks. Random
# directions raise the loss far less: by rho^2 tr(H) / (2 P) instead of rho |g|.
DEFAULT_RHO = {"sam": 0.05, "asam": 0.5, "gaussian": 1.0}

_ETA = 0.01  # keeps weights that are 0 movable (Kwon et al., 2021, sec. 4)


@runtime_checkable
class Differentiable(Protocol):
    """A loss as a function of one flat vector of parameters, such as an `Objective`."""

    @property
    def theta(self) -> Tensor:
        """The present parameters."""
        ...

    def value(self, theta: Tensor) -> float:
        """The loss at `theta`."""
        ...

    def gradient(self, theta: Tensor) -> Tensor:
        """Its gradient there."""
        ...


def sharpness(
    objective: Differentiable,
    measures: Sequence[str] = ("sam", "asam"),
    *,
    rho: float | None = None,
    steps: int = 1,
    directions: int = 8,
    run: Run = DEFAULT_RUN,
) -> Sharpness:
    """The increase L(w + d) - L(w) of the loss at a distance rho.

    - ``"sam"``: d = rho g / |g| along the gradient g. With several ascent steps of length
      rho / steps, each along the gradient at the point reached, and |d| <= rho.
    - ``"asam"``: d = rho T² g / |T g| with T = |w| + 0.01 entry by entry, so that rescaling a
      layer and the inverse rescaling of the next change little; |d / T| <= rho.
    - ``"gaussian"``: the mean over random directions ±d, d = rho u / |u| with u normal.

    The gradient measures are lower bounds of the maximum within the distance; more steps come
    closer to it.

    Cost: `steps` gradients and one evaluation for each gradient measure, `2 directions`
    evaluations for the Gaussian measure.

    Sources: Foret et al. (2021), eq. 2; Kwon et al. (2021), eq. 8.
    """
    _check(measures, rho, steps, directions)
    rows = _rows(objective, measures, rho, steps, directions, run.seed, batch=-1)
    provenance = run.provenance
    if isinstance(objective, Objective):
        sizes = [len(batch[1]) for batch in objective.batches]
        provenance = run.measured(
            images=sum(sizes), batch_size=max(sizes), image_shape=objective.image_shape
        )
    return _result(rows, directions if "gaussian" in measures else 0, provenance)


def mini_batch_sharpness(
    objective: Objective,
    measures: Sequence[str] = ("sam",),
    *,
    rho: float | None = None,
    steps: int = 1,
    directions: int = 8,
    run: Run | None = None,
) -> Sharpness:
    """The sharpness of each mini-batch's loss, or m-sharpness for mini-batches of m images.

    SAM perturbs the weights for each mini-batch separately, so this, and not the sharpness over
    all data, is what it minimizes. The mean over mini-batches has an interval.

    Cost: that of `sharpness`, once over the data.

    Source: Foret et al. (2021), sec. 4.
    """
    _check(measures, rho, steps, directions)
    objective = objective.with_run(run)
    rows, images, largest = [], 0, 0
    for number, batch in enumerate(objective.run.track(objective.batches, "mini-batches")):
        one = objective.with_batches([batch], shared=False)
        rows += _rows(one, measures, rho, steps, directions, objective.run.seed, batch=number)
        images, largest = images + len(batch[1]), max(largest, len(batch[1]))
    provenance = objective.run.measured(
        images=images, batch_size=largest, image_shape=objective.image_shape
    )
    return _result(rows, directions if "gaussian" in measures else 0, provenance)


def _check(measures: Sequence[str], rho: float | None, steps: int, directions: int) -> None:
    unknown = [measure for measure in measures if measure not in DEFAULT_RHO]
    if unknown or not measures:
        raise InputError(
            f"measures must be among {', '.join(DEFAULT_RHO)}, got "
            f"{', '.join(unknown) or 'none'}"
        )
    if rho is not None and not (np.isfinite(rho) and rho > 0):
        raise InputError(f"rho must be positive, got {rho}")
    if steps < 1 or directions < 1:
        raise InputError(
            f"steps and directions must be at least 1, got {steps} and {directions}"
        )


def _rows(
    objective: Differentiable,
    measures: Sequence[str],
    rho: float | None,
    steps: int,
    directions: int,
    seed: int,
    *,
    batch: int,
) -> list[tuple]:
    """A row of `Sharpness` for each measure."""
    theta = objective.theta
    gradient, loss = objective.gradient(theta), float(objective.value(theta))
    norm = gradient.cpu().double().norm().item()
    if not (np.isfinite(norm) and np.isfinite(loss) and norm > 0):
        raise InputError(
            f"the loss must be finite and its gradient not zero, got loss {loss:g} and "
            f"gradient norm {norm:g}"
        )
    rows = []
    for measure in measures:
        distance = DEFAULT_RHO[measure] if rho is None else rho
        linear = error = float("nan")
        if measure == "gaussian":
            rises = _gaussian_rises(objective, distance, directions, seed) - loss
            rise = float(rises.mean())
            error = float(rises.std(ddof=1) / directions**0.5) if directions > 2 else error
        else:
            step = ascent_step(objective, measure, gradient, distance, steps)
            rise = float(objective.value(theta + step)) - loss
            if steps == 1:
                linear = (gradient.cpu().double() @ step.cpu().double()).item()
        if not np.isfinite(rise):
            raise InputError(
                f"the loss at distance {distance:g} must be finite for {measure}, got an "
                f"increase of {rise:g}. The weights or the gradient are too large or too small "
                "for their precision."
            )
        ascent = 0 if measure == "gaussian" else steps
        rows.append((measure, batch, distance, ascent, rise, error, linear, loss, norm))
    return rows


def _gaussian_rises(
    objective: Differentiable, rho: float, directions: int, seed: int
) -> Float[np.ndarray, " n"]:
    """The loss at distance rho in random directions, the same for every mini-batch.

    Each value is the mean of a direction and its opposite, in which odd orders cancel.
    """
    theta, values = objective.theta, []
    for draw in range(directions):
        noise = torch.randn(len(theta), generator=stream(seed, "sharpness", draw)).to(theta)
        step = rho * noise / noise.norm()
        both = (objective.value(theta + step), objective.value(theta - step))
        values.append(sum(map(float, both)) / 2)
    return np.array(values)


def ascent_step(
    objective: Differentiable,
    measure: str,
    gradient: Float[Tensor, " p"],
    rho: float,
    steps: int,
) -> Float[Tensor, " p"]:
    """The perturbation of "sam" or "asam" after `steps` steps of length rho / steps.

    `gradient` is that at the parameters of the objective, where the first step is taken.
    """
    theta = objective.theta
    scale = 1.0 if measure == "sam" else theta.abs() + _ETA
    step = torch.zeros_like(theta)
    for number in range(steps):
        if number:
            gradient = objective.gradient(theta + step)
        scaled = gradient * scale
        scaled = scaled / scaled.abs().max()  # or the squares of a small gradient would be 0
        step = step + rho / steps * scale * scaled / scaled.norm()
    return step


def _result(rows: list[tuple], directions: int, provenance: Provenance) -> Sharpness:
    names = (
        "measure", "batch", "rho", "steps", "sharpness", "error", "first_order", "loss",
        "gradient_norm",
    )  # fmt: skip
    columns = map(np.array, zip(*rows, strict=True))
    return Sharpness(
        **dict(zip(names, columns, strict=True)), directions=directions, provenance=provenance
    )
