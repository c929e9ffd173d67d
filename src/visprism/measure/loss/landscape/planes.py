"""Planes in the space of parameters on which a loss is measured.

A plane consists of the points w + a d1 + b d2 around the weights w of the model, with a grid of
values of a and b. A line has no second direction.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float
from torch import Tensor, nn

from visprism.core.errors import InputError
from visprism.measure.loss.landscape.directions import Direction, gaussian, named_parameters
from visprism.measure.loss.landscape.vectors import fitting, inner, norm

PARALLEL = 1e-4  # sine of the angle below which two directions span no plane


@dataclass(frozen=True)
class Plane:
    """The points w + a d1 + b d2 around a model's weights, and a grid of them."""

    first: Direction = field(repr=False)
    second: Direction = field(repr=False)  # empty for a line
    a: Float[np.ndarray, " n"]
    b: Float[np.ndarray, " m"]  # only 0 for a line
    kind: str  # "random", "checkpoints" or "given"
    normalization: str = "none"

    def __post_init__(self) -> None:
        for values in (self.a, self.b):
            if len(values) == 0 or not np.isfinite(values).all():
                raise InputError(f"grid must consist of finite numbers, got {values.tolist()}")
        if norm(self.first) == 0 or (self.second and _sine(self.first, self.second) < PARALLEL):
            raise InputError(
                "directions must span a plane, got directions that are zero or parallel. Pass "
                "one direction alone for a line."
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
    perturb_positions: bool = False,
    seed: int = 0,
) -> list[Plane]:
    """Planes through the model's weights along pairs of random directions.

    Args:
        model: the model whose parameters move.
        pairs: number of planes, each with two directions.
        points: of the grid along each axis; odd, so that the model's weights are one.
        reach: the grid covers [-reach, reach] in both directions.
        lines: whether there is only one direction.
        normalization: of the directions; see `directions.gaussian`.
        perturb_positions: whether random directions also change position embeddings.
        seed: of the directions.

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

    Directions, such as two eigenvectors of the Hessian, are not normalized.

    Args:
        model: the model whose parameters move.
        first: an entry for each parameter that moves, by its name.
        second: likewise; None for a line.
        points: of the grid along each axis; odd.
        reach: the grid covers [-reach, reach] in both directions.
    """
    parameters = {name: parameter for name, parameter, _ in named_parameters(model)}
    d1, d2 = (fitting(d, parameters, "direction") for d in (first, second or {}))
    grid = axis(points, reach)
    return Plane(d1, d2, grid, grid if second else np.zeros(1), "given")


def squared_norms(plane: Plane, weights: Mapping[str, Tensor]) -> Float[np.ndarray, " p"]:
    """|w + a d1 + b d2|^2 at every point of the plane, with w the `weights`.

    Other parameters that a direction moves are not included.
    """
    vectors = [
        weights,
        *({n: d[n] for n in d if n in weights} for d in (plane.first, plane.second)),
    ]
    products = np.array([[inner(u, v) for v in vectors] for u in vectors])
    coefficients = np.array([(1.0, a, b) for a, b in plane.points()])
    return np.einsum("pi,ij,pj->p", coefficients, products, coefficients)


_MOST_POINTS = 1001  # along an axis


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
