"""Planes through checkpoints, of several training runs or of one."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from torch import Tensor, nn

from visprism.core.errors import InputError
from visprism.measure.loss.landscape.directions import Direction, named_parameters
from visprism.measure.loss.landscape.planes import PARALLEL, Plane, axis
from visprism.measure.loss.landscape.vectors import difference, inner, norm


def plane_through(
    model: nn.Module,
    checkpoints: Sequence[Mapping[str, Tensor]],
    *,
    points: int = 21,
    margin: float = 0.25,
) -> Plane:
    """The plane through the model's weights and two checkpoints, or the line through one.

    The first checkpoint lies at (1, 0). The second direction is orthogonal to the first
    and as long, so that distances in the figure are distances between weights, in units of the
    distance from the model to the first checkpoint. All parameters move; buffers do not.

    Args:
        model: its weights are the point (0, 0).
        checkpoints: one or two state dicts of the same architecture.
        points: of the grid along each axis; odd.
        margin: extension of the grid beyond the checkpoints, as a fraction of their extent.

    Source: Garipov et al. (2018), Loss surfaces, mode connectivity, and fast ensembling of
    DNNs.
    """
    if len(checkpoints) not in (1, 2):
        raise InputError(
            f"checkpoints must be 2 for a plane or 1 for a line, got {len(checkpoints)}"
        )
    parameters = {name: parameter for name, parameter, _ in named_parameters(model)}
    steps = [
        difference(state, parameters, f"checkpoint {i}")
        for i, state in enumerate(checkpoints, 1)
    ]
    for i, step in enumerate(steps, 1):
        if norm(step) == 0:
            raise InputError(
                f"checkpoints must differ from the model, got equal weights in checkpoint {i}"
            )
    first, coordinates = steps[0], [(1.0, 0.0)]
    second: Direction = {}
    if len(steps) == 2:
        along = inner(first, steps[1]) / inner(first, first)
        rest = {name: steps[1][name] - along * first[name] for name in first}
        if norm(rest) < PARALLEL * norm(steps[1]):
            raise InputError(
                "checkpoints must not be collinear with the model. Pass one of them for a line."
            )
        length = norm(first) / norm(rest)
        second = {name: length * part for name, part in rest.items()}
        coordinates.append((along, 1 / length))
    a, b = (np.array([0.0, *values]) for values in zip(*coordinates, strict=True))
    return Plane(
        first,
        second,
        _around(a, points, margin),
        _around(b, points, margin) if second else np.zeros(1),
        "checkpoints",
    )


def _around(coordinates: Float[np.ndarray, " k"], points: int, margin: float) -> np.ndarray:
    """An axis that contains the coordinates, with a margin."""
    axis(points, 1.0)
    low, high = coordinates.min(), coordinates.max()
    extension = margin * (high - low)
    return np.linspace(low - extension, high + extension, points)
