"""Planes through checkpoints: the loss between the ends of several trainings, or along one."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from torch import Tensor, nn

from visprism.core.errors import InputError
from visprism.measure.loss.landscape.directions import Direction, owned
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

    The first checkpoint lies at (1, 0). The second direction is at a right angle to the first
    and as long, so that distances in the figure are distances between weights, in units of that
    from the model to the first checkpoint. All parameters move; buffers do not.

    Args:
        model: its weights are the point (0, 0).
        checkpoints: one or two state dicts of the same architecture.
        points: of the grid along each axis; odd.
        margin: how far the grid reaches beyond the checkpoints, in their extent.

    Raises:
        InputError: if checkpoints do not fit the model, equal it, or lie in one line with it.

    Source: Garipov et al. (2018), Loss surfaces, mode connectivity, and fast ensembling of
    DNNs.
    """
    if len(checkpoints) not in (1, 2):
        raise InputError(
            f"got {len(checkpoints)} checkpoints; a plane goes through the model and 2 of "
            "them, a line through the model and 1"
        )
    own = {name: parameter for name, parameter, _ in owned(model)}
    steps = [
        difference(state, own, f"checkpoint {i}") for i, state in enumerate(checkpoints, 1)
    ]
    for i, step in enumerate(steps, 1):
        if norm(step) == 0:
            raise InputError(
                f"checkpoint {i} has the weights of the model itself; give another"
            )
    first, places = steps[0], [(1.0, 0.0)]
    second: Direction = {}
    if len(steps) == 2:
        along = inner(first, steps[1]) / inner(first, first)
        rest = {name: steps[1][name] - along * first[name] for name in first}
        if norm(rest) < PARALLEL * norm(steps[1]):
            raise InputError(
                "the model and the checkpoints lie in one line; give one checkpoint alone"
            )
        length = norm(first) / norm(rest)
        second = {name: length * part for name, part in rest.items()}
        places.append((along, 1 / length))
    a, b = (np.array([0.0, *each]) for each in zip(*places, strict=True))
    return Plane(
        first,
        second,
        _around(a, points, margin),
        _around(b, points, margin) if second else np.zeros(1),
        "checkpoints",
    )


def _around(places: Float[np.ndarray, " k"], points: int, margin: float) -> np.ndarray:
    """Points with the places in their midst."""
    axis(points, 1.0)
    low, high = places.min(), places.max()
    room = margin * (high - low)
    return np.linspace(low - room, high + room, points)
