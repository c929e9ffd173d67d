"""Sharpness: how much the loss rises within a small distance of a model's weights, at worst.

The worst place within a distance rho is taken to be where the gradient points, as sharpness-
aware minimisation does.

Sources: Foret et al. (2021), Sharpness-aware minimization; Kwon et al. (2021), ASAM.
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float
from torch import Tensor

from visprism.core.errors import InputError
from visprism.core.provenance import Provenance
from visprism.results.base import Result, column, result_type

RADII = {"sam": 0.05, "asam": 0.5}  # rho; what both papers train CIFAR networks with
_ETA = 0.01  # keeps weights that are 0 movable (Kwon et al., 2021, sec. 4)


@runtime_checkable
class Differentiable(Protocol):
    """A loss as a function of one flat vector of parameters, such as an `Objective`."""

    theta: Tensor

    def value(self, theta: Tensor) -> float:
        """The loss at `theta`."""
        ...

    def gradient(self, theta: Tensor) -> Tensor:
        """Its gradient there."""
        ...


@result_type("sharpness")
class Sharpness(Result):
    """How much the loss rises by one step along its gradient; one row for each rule."""

    rule: np.ndarray = column(
        "Measure", "", "'sam', or 'asam', which measures distances in units of the weights"
    )
    rho: np.ndarray = column(
        "Length of the step", "", "length of the step, by the rule's own measure"
    )
    sharpness: np.ndarray = column("Rise of the loss", "", "L(w + d) - L(w)")
    first_order: np.ndarray = column(
        "Of its tangent", "", "what a plane would rise by: the gradient times d"
    )
    loss: np.ndarray = column("Loss", "", "L(w)")
    gradient_norm: np.ndarray = column("Norm of the gradient", "", "Euclidean")

    def sentences(self) -> list[str]:
        """What was found, with its numbers."""
        return [
            f"the loss rises by {rise:.3g} within a radius of {rho:g} ({rule.upper()})"
            for rule, rho, rise in zip(
                self.rule.tolist(), self.rho.tolist(), self.sharpness.tolist(), strict=True
            )
        ]


def sharpness(
    objective: Differentiable,
    rules: Sequence[str] = ("sam", "asam"),
    *,
    rho: float | None = None,
    provenance: Provenance | None = None,
) -> Sharpness:
    """The rise L(w + d) - L(w) of the loss, with d along the gradient g.

    For ``"sam"``, d = rho g / |g|. For ``"asam"``, d = rho T² g / |T g| with T = |w| + 0.01
    entry by entry, so that scaling a layer up and the next one down changes little.

    Costs one gradient and, for each rule, one evaluation over the data of the objective.

    Args:
        objective: the loss; its parameters are those that move.
        rules: which measures.
        rho: of all rules; by default 0.05 for "sam" and 0.5 for "asam".
        provenance: what is known of the model and the data.

    Raises:
        InputError: if there is no such rule, rho is not positive, or the gradient is zero or
            not finite.

    Sources: Foret et al. (2021), eq. 2; Kwon et al. (2021), eq. 8.
    """
    unknown = [rule for rule in rules if rule not in RADII]
    if unknown or not rules:
        raise InputError(
            f"no measure of sharpness {', '.join(unknown) or 'is named'}; there is "
            f"{' and '.join(RADII)}"
        )
    if rho is not None and not (np.isfinite(rho) and rho > 0):
        raise InputError(f"rho is {rho}; wants a positive number, such as 0.05")
    theta = objective.theta
    gradient, loss = objective.gradient(theta), float(objective.value(theta))
    length = gradient.double().norm().item()
    if not (np.isfinite(length) and np.isfinite(loss) and length > 0):
        raise InputError(
            f"the loss is {loss:g} and its gradient has length {length:g}; sharpness follows a "
            "gradient that is finite and not zero"
        )
    rows = []
    for rule in rules:
        radius = RADII[rule] if rho is None else rho
        step = _step(rule, theta, gradient, radius)
        rise = float(objective.value(theta + step)) - loss
        linear = (gradient.double() @ step.double()).item()
        rows.append((rule, radius, rise, linear, loss, length))
    columns = (np.array(column) for column in zip(*rows, strict=True))
    return Sharpness(*columns, provenance=provenance or Provenance())


def _step(
    rule: str, theta: Float[Tensor, " p"], gradient: Float[Tensor, " p"], rho: float
) -> Float[Tensor, " p"]:
    scale = 1.0 if rule == "sam" else theta.abs() + _ETA
    scaled = gradient * scale
    return rho * scale * scaled / scaled.norm()
