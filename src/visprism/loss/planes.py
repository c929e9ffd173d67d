"""Planes in the space of parameters on which a loss is measured.

A plane consists of the points w + a d1 + b d2 around the weights w of the model, with a grid of
values of a and b.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from visprism.core.errors import InputError
from visprism.core.run import DEFAULT_RUN, Run
from visprism.loss.directions import (
    Direction,
    difference,
    fitting,
    gaussian,
    gram,
    inner,
    norm,
    parameters_of,
)
from visprism.table.result import Result, column, result_type

State = Mapping[str, Tensor]  # such as a state dict

_PARALLEL = 1e-4  # sine of the angle below which two directions span no plane
_MOST_POINTS = 1001  # along an axis


@result_type("projection", "Checkpoints in the plane", figures={})
class Projection(Result):
    """Snapshots projected onto a plane through the weights; one row for each.

    The projection of each checkpoint onto the plane. If the in-plane fraction is small, the
    loss at the projection is not the checkpoint's loss.
    """

    snapshot: np.ndarray = column("Snapshot", "", "its number, from 0")
    a: np.ndarray = column("a", "", "coordinate along the first direction of the plane")
    b: np.ndarray = column("b", "", "coordinate along the second direction of the plane")
    share: np.ndarray = column(
        "In-plane fraction", "", "of the squared Euclidean distance from the model's weights"
    )


@dataclass(frozen=True)
class Plane:
    """The points w + a d1 + b d2 around a model's weights, and a grid of them."""

    first: Direction = field(repr=False)
    second: Direction = field(repr=False)
    a: Float[np.ndarray, " n"]
    b: Float[np.ndarray, " m"]
    kind: str  # "random" or "given"
    normalization: str = "none"

    def __post_init__(self) -> None:
        for values in (self.a, self.b):
            if len(values) == 0 or not np.isfinite(values).all():
                raise InputError(f"grid must consist of finite numbers, got {values.tolist()}")
        zero = norm(self.first) == 0 or norm(self.second) == 0
        if zero or _sine(self.first, self.second) < _PARALLEL:
            raise InputError(
                "directions must span a plane, got directions that are zero or parallel"
            )

    def points(self) -> list[tuple[float, float]]:
        """All (a, b) of the grid, b changing slowest."""
        return [(float(a), float(b)) for b in self.b for a in self.a]


def random_planes(
    model: nn.Module,
    *,
    pairs: int = 1,
    points: int = 21,
    reach: float = 1.0,
    normalization: str = "filter",
    perturb_positions: bool = False,
    seed: int = 0,
) -> list[Plane]:
    """Planes through the model's weights along pairs of random directions.

    The grid covers [-reach, reach] with an odd number of points along each axis, so that the
    model is one of them. See `gaussian`.

    Source: Li et al. (2018), Visualizing the loss landscape of neural nets.
    """
    if pairs < 1:
        raise InputError(f"pairs must be at least 1, got {pairs}")
    grid = axis(points, reach)

    def direction(pair: int, number: int) -> Direction:
        return gaussian(
            model,
            pair,
            number,
            normalization=normalization,
            perturb_positions=perturb_positions,
            seed=seed,
        )

    return [
        Plane(
            direction(pair, 1),
            direction(pair, 2),
            grid,
            grid,
            "random",
            normalization,
        )
        for pair in range(pairs)
    ]


def plane_along(
    model: nn.Module,
    first: Mapping[str, Tensor],
    second: Mapping[str, Tensor],
    *,
    points: int = 21,
    reach: float = 1.0,
) -> Plane:
    """The plane through the model's weights along given directions.

    Directions, such as two eigenvectors of the Hessian, are not normalized.
    """
    parameters = parameters_of(model)
    d1, d2 = (fitting(d, parameters, "direction") for d in (first, second))
    grid = axis(points, reach)
    return Plane(d1, d2, grid, grid, "given")


def axis(points: int, reach: float) -> Float[np.ndarray, " n"]:
    """Points from -reach to reach, the middle one exactly 0."""
    if not 3 <= points <= _MOST_POINTS or points % 2 == 0:
        raise InputError(
            "points must be odd, so that the model's weights are on the grid, at least 3 and "
            f"at most {_MOST_POINTS}, got {points}"
        )
    if not (np.isfinite(reach) and reach > 0):
        raise InputError(f"reach must be positive, got {reach}")
    half = points // 2
    return reach * np.arange(-half, half + 1) / half


def _sine(first: Direction, second: Direction) -> float:
    cosine = inner(first, second) / max(norm(first) * norm(second), 1e-300)
    return max(0.0, 1 - cosine**2) ** 0.5


def project(
    model: nn.Module, plane: Plane, snapshots: Sequence[State], *, run: Run = DEFAULT_RUN
) -> Projection:
    """Orthogonal projection of snapshots onto a plane through the model's weights.

    The projection uses the parameters that the plane moves. `share` is the fraction of the
    squared distance from the model's weights, over all parameters, within the plane: near 0 the
    snapshot is far from the plane, and the loss at its projection is not its loss.
    """
    if not snapshots:
        raise InputError("snapshots must have at least one state dictionary, got none")
    parameters = parameters_of(model)
    axes = (plane.first, plane.second)
    matrix = np.array([[inner(u, v) for v in axes] for u in axes])
    rows = []
    for number, state in enumerate(snapshots):
        step = difference(state, parameters, f"snapshot {number}")
        products = np.array([inner(axis, step) for axis in axes])
        coordinates = np.linalg.solve(matrix, products)
        squared = inner(step, step)
        share = float(products @ coordinates) / squared if squared > 0 else 1.0
        rows.append((number, *coordinates, min(share, 1.0)))
    snapshot, a, b, shares = (np.array(column) for column in zip(*rows, strict=True))
    return Projection(snapshot=snapshot, a=a, b=b, share=shares, provenance=run.provenance)


def principal_plane(
    model: nn.Module, snapshots: Sequence[State], *, points: int = 21, margin: float = 0.25
) -> Plane:
    """The plane through the model's weights along the two principal directions of a path.

    They are the principal components of the differences of the snapshots from the model's
    weights, the end of the path, scaled so that the path lies within [-1, 1]. With two
    snapshots the plane goes through both.

    Source: Li et al. (2018), Visualizing the loss landscape of neural nets, sec. 7.2.
    """
    parameters = parameters_of(model)
    if len(snapshots) < 2:
        raise InputError(
            f"checkpoints must be at least 2 for a plane, got {len(snapshots)}. For the loss "
            "between a model and one checkpoint use visprism mode-connectivity."
        )
    steps = [difference(s, parameters, f"snapshot {i}") for i, s in enumerate(snapshots)]
    values, vectors = np.linalg.eigh(gram(steps))
    if values[-2] <= 1e-8 * values[-1]:
        raise InputError("snapshots must span a plane, got snapshots on a straight line")
    directions: list[Direction] = []
    for weights in (vectors[:, -1], vectors[:, -2]):
        scale = (weights * np.abs(weights).max()).tolist()
        parts = {n: [w * s[n] for w, s in zip(scale, steps, strict=True)] for n in parameters}
        directions.append({name: torch.stack(part).sum(0) for name, part in parts.items()})
    return plane_along(model, directions[0], directions[1], points=points, reach=1 + margin)
