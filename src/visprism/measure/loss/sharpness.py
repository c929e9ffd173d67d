"""Sharpness: how much the loss rises at a small distance from a model's weights.

SAM and ASAM go along the gradient, which is a lower bound of the maximum within that distance;
the Gaussian rule averages over random directions.

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
from visprism.core.rng import stream
from visprism.core.run import DEFAULT_RUN, Run
from visprism.measure.loss.objective import Objective
from visprism.results.loss import Sharpness

# Distances: for the gradient rules those with which both papers train CIFAR networks. Random
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
    rules: Sequence[str] = ("sam", "asam"),
    *,
    rho: float | None = None,
    steps: int = 1,
    draws: int = 8,
    run: Run = DEFAULT_RUN,
) -> Sharpness:
    """The increase L(w + d) - L(w) of the loss at a distance rho.

    - ``"sam"``: d = rho g / |g| along the gradient g. With several ascent steps of length
      rho / steps, each along the gradient at the point reached, and |d| <= rho.
    - ``"asam"``: d = rho T² g / |T g| with T = |w| + 0.01 entry by entry, so that rescaling a
      layer and the inverse rescaling of the next change little; |d / T| <= rho.
    - ``"gaussian"``: the mean over random directions ±d, d = rho u / |u| with u normal.

    The gradient rules are lower bounds of the maximum within the distance; more steps come
    closer to it.

    Cost: `steps` gradients and one evaluation for each gradient rule, `2 draws` evaluations for
    the Gaussian rule.

    Args:
        objective: the loss; its parameters are perturbed.
        rules: which measures.
        rho: of all rules; by default 0.05 for "sam", 0.5 for "asam", 1 for "gaussian".
        steps: ascent steps of the gradient rules.
        draws: Gaussian directions, each with its opposite.
        run: seed and provenance.

    Raises:
        InputError: if a rule is unknown, rho or a number is not positive, or the gradient is
            zero or not finite.

    Sources: Foret et al. (2021), eq. 2; Kwon et al. (2021), eq. 8.
    """
    _check(rules, rho, steps, draws)
    rows = _rows(objective, rules, rho, steps, draws, run.seed, batch=-1)
    return _result(rows, draws if "gaussian" in rules else 0, _provenance(objective, run))


def mini_batch_sharpness(
    objective: Objective,
    rules: Sequence[str] = ("sam",),
    *,
    rho: float | None = None,
    steps: int = 1,
    draws: int = 8,
    run: Run | None = None,
) -> Sharpness:
    """The sharpness of each mini-batch's loss, or m-sharpness for mini-batches of m images.

    SAM perturbs the weights for each mini-batch separately, so this, and not the sharpness over
    all data, is what it minimizes. The mean over mini-batches has an interval.

    Cost: that of `sharpness`, once over the data.

    Args:
        objective: its batches are the mini-batches; several processes do not share them.
        rules: see `sharpness`.
        rho: see `sharpness`.
        steps: see `sharpness`.
        draws: see `sharpness`.
        run: seed, progress, provenance and deadline; by default that of the objective.

    Raises:
        InputError: as `sharpness`.
        TimeBudgetError: after the deadline of the run.

    Source: Foret et al. (2021), sec. 4.
    """
    _check(rules, rho, steps, draws)
    objective = objective.with_run(run)
    rows, images, largest = [], 0, 0
    for number, batch in enumerate(objective.run.track(objective.batches, "mini-batches")):
        one = objective.with_batches([batch], shared=False)
        rows += _rows(one, rules, rho, steps, draws, objective.run.seed, batch=number)
        images, largest = images + len(batch[1]), max(largest, len(batch[1]))
    provenance = objective.run.measured(
        images=images, batch_size=largest, image_shape=objective.image_shape
    )
    return _result(rows, draws if "gaussian" in rules else 0, provenance)


def _check(rules: Sequence[str], rho: float | None, steps: int, draws: int) -> None:
    unknown = [rule for rule in rules if rule not in DEFAULT_RHO]
    if unknown or not rules:
        raise InputError(
            f"rules must be among {', '.join(DEFAULT_RHO)}, got {', '.join(unknown) or 'none'}"
        )
    if rho is not None and not (np.isfinite(rho) and rho > 0):
        raise InputError(f"rho must be positive, got {rho}")
    if steps < 1 or draws < 1:
        raise InputError(f"steps and draws must be at least 1, got {steps} and {draws}")


def _rows(
    objective: Differentiable,
    rules: Sequence[str],
    rho: float | None,
    steps: int,
    draws: int,
    seed: int,
    *,
    batch: int,
) -> list[tuple]:
    """A row of `Sharpness` for each rule."""
    theta = objective.theta
    gradient, loss = objective.gradient(theta), float(objective.value(theta))
    norm = gradient.double().norm().item()
    if not (np.isfinite(norm) and np.isfinite(loss) and norm > 0):
        raise InputError(
            f"the loss must be finite and its gradient not zero, got loss {loss:g} and "
            f"gradient norm {norm:g}"
        )
    rows = []
    for rule in rules:
        distance = DEFAULT_RHO[rule] if rho is None else rho
        linear = error = float("nan")
        if rule == "gaussian":
            rises = _gaussian_rises(objective, distance, draws, seed) - loss
            rise = float(rises.mean())
            error = float(rises.std(ddof=1) / draws**0.5) if draws > 2 else error
        else:
            step = _ascent(objective, rule, gradient, distance, steps)
            rise = float(objective.value(theta + step)) - loss
            linear = (gradient.double() @ step.double()).item() if steps == 1 else linear
        ascent = 0 if rule == "gaussian" else steps
        rows.append((rule, batch, distance, ascent, rise, error, linear, loss, norm))
    return rows


def _gaussian_rises(
    objective: Differentiable, rho: float, draws: int, seed: int
) -> Float[np.ndarray, " n"]:
    """The loss at distance rho in random directions, the same for every mini-batch.

    Each value is the mean of a direction and its opposite, in which odd orders cancel.
    """
    theta, values = objective.theta, []
    for draw in range(draws):
        noise = torch.randn(len(theta), generator=stream(seed, "sharpness", draw)).to(theta)
        step = rho * noise / noise.norm()
        both = (objective.value(theta + step), objective.value(theta - step))
        values.append(sum(map(float, both)) / 2)
    return np.array(values)


def _ascent(
    objective: Differentiable, rule: str, gradient: Float[Tensor, " p"], rho: float, steps: int
) -> Float[Tensor, " p"]:
    """The perturbation after `steps` steps, each of length rho / steps in the rule's norm."""
    theta = objective.theta
    scale = 1.0 if rule == "sam" else theta.abs() + _ETA
    step = torch.zeros_like(theta)
    for number in range(steps):
        if number:
            gradient = objective.gradient(theta + step)
        scaled = gradient * scale
        step = step + rho / steps * scale * scaled / scaled.norm()
    return step


def _provenance(objective: Differentiable, run: Run) -> Provenance:
    """That of the run, completed where the objective knows its data."""
    if not isinstance(objective, Objective):
        return run.provenance
    sizes = [len(targets) for _, targets in objective.batches]
    return run.measured(
        images=sum(sizes), batch_size=max(sizes), image_shape=objective.image_shape
    )


def _result(rows: list[tuple], draws: int, provenance: Provenance) -> Sharpness:
    names = (
        "rule", "batch", "rho", "steps", "sharpness", "error", "first_order", "loss",
        "gradient_norm",
    )  # fmt: skip
    columns = map(np.array, zip(*rows, strict=True))
    return Sharpness(
        **dict(zip(names, columns, strict=True)), draws=draws, provenance=provenance
    )
