"""Planes: where in the space of its parameters a model's loss is looked at.

A plane is the points w + a d1 + b d2 about the weights w that the model has, with a grid of
values of a and b. A line has no second direction.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float
from torch import Tensor, nn

from visprism.core.errors import InputError
from visprism.measure.loss.landscape.directions import Direction, gaussian, owned
from visprism.measure.loss.landscape.vectors import fitting, inner, norm

PARALLEL = 1e-4  # sine of the angle below which two directions span no plane


@dataclass(frozen=True)
class Plane:
    """The points w + a d1 + b d2 about a model's weights, and a grid of them."""

    first: Direction = field(repr=False)
    second: Direction = field(repr=False)  # empty for a line
    a: Float[np.ndarray, " n"]
    b: Float[np.ndarray, " m"]  # only 0 for a line
    kind: str  # "random", "checkpoints" or "given"
    normalization: str = "none"

    def __post_init__(self) -> None:
        for values in (self.a, self.b):
            if len(values) == 0 or not np.isfinite(values).all():
                raise InputError(f"a grid of {values.tolist()}; wants finite numbers")
        if norm(self.first) == 0 or (self.second and _sine(self.first, self.second) < PARALLEL):
            raise InputError(
                "the directions are zero or parallel and span no plane; give two that differ, "
                "or one alone for a line"
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
    lines: bool = False,
    normalization: str = "filter",
    tables: bool = False,
    seed: int = 0,
) -> list[Plane]:
    """Planes through the model's weights along pairs of random directions.

    Args:
        model: whose parameters are meant.
        pairs: number of planes, each with directions of its own.
        points: of the grid along each axis; odd, so that the weights themselves are one.
        reach: the grid covers [-reach, reach] in both directions.
        lines: whether to look along one direction only.
        normalization: of the directions; see `directions.gaussian`.
        tables: whether tables of positions move too.
        seed: of the directions.

    Raises:
        InputError: if the grid or the number of pairs is none, or as `directions.gaussian`.

    Source: Li et al. (2018), Visualizing the loss landscape of neural nets.
    """
    if pairs < 1:
        raise InputError(f"pairs is {pairs}; wants at least 1 pair of directions")
    grid = axis(points, reach)

    def direction(pair: int, number: int) -> Direction:
        return gaussian(
            model, pair, number, normalization=normalization, tables=tables, seed=seed
        )

    return [
        Plane(
            direction(pair, 1),
            {} if lines else direction(pair, 2),
            grid,
            np.zeros(1) if lines else grid,
            "random",
            normalization,
        )
        for pair in range(pairs)
    ]


def plane_along(
    model: nn.Module,
    first: Mapping[str, Tensor],
    second: Mapping[str, Tensor] | None = None,
    *,
    points: int = 21,
    reach: float = 1.0,
) -> Plane:
    """The plane, or line, through the model's weights along given directions.

    Directions are taken as they are, such as two eigenvectors of the Hessian.

    Args:
        model: whose parameters are meant.
        first: an entry for each parameter that moves, by its name.
        second: the same; none for a line.
        points: of the grid along each axis; odd.
        reach: the grid covers [-reach, reach] in both directions.

    Raises:
        InputError: if an entry is of no parameter or of another shape, or as `random_planes`.
    """
    own = {name: parameter for name, parameter, _ in owned(model)}
    d1, d2 = (fitting(each, own, "the direction") for each in (first, second or {}))
    grid = axis(points, reach)
    return Plane(d1, d2, grid, grid if second else np.zeros(1), "given")


def squared_norms(plane: Plane, own: Mapping[str, Tensor]) -> Float[np.ndarray, " p"]:
    """|w + a d1 + b d2|^2 at every point of the plane, w being `own`, from inner products.

    What a direction moves besides does not count.
    """
    vectors = [own, *({n: d[n] for n in d if n in own} for d in (plane.first, plane.second))]
    products = np.array([[inner(u, v) for v in vectors] for u in vectors])
    along = np.array([(1.0, a, b) for a, b in plane.points()])
    return np.einsum("pi,ij,pj->p", along, products, along)


def axis(points: int, reach: float) -> Float[np.ndarray, " n"]:
    """Points from -reach to reach, the middle one exactly 0."""
    if points < 3 or points % 2 == 0:
        raise InputError(
            f"points is {points}; wants an odd number from 3 on, so that the model's own "
            "weights are a point of the grid"
        )
    if not (np.isfinite(reach) and reach > 0):
        raise InputError(f"reach is {reach}; wants a positive number, such as 1.0")
    half = points // 2
    return reach * np.arange(-half, half + 1) / half


def _sine(first: Direction, second: Direction) -> float:
    cosine = inner(first, second) / max(norm(first) * norm(second), 1e-300)
    return max(0.0, 1 - cosine**2) ** 0.5
