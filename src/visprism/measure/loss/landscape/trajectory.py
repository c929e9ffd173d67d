"""Trajectories: the way of a model's weights through training, from snapshots.

A path through millions of dimensions has no picture. Two numbers are drawn for each snapshot,
and what they leave out is told beside them; they do not show how a network learns.

Source: Park and Kim (2022), How do vision transformers work?, fig. 1c, which its authors have
withdrawn since.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from visprism.core.errors import InputError
from visprism.core.provenance import Provenance
from visprism.measure.loss.landscape.directions import Direction, owned
from visprism.measure.loss.landscape.planes import Plane, plane_along
from visprism.measure.loss.landscape.vectors import difference, inner
from visprism.results.base import Result, column, result_type, scalar

State = Mapping[str, Tensor]  # such as a state dict
_FEWEST = 3  # snapshots: two lie on a line whatever they are


@result_type("trajectory")
class Trajectory(Result):
    """Where the weights were; one row for each snapshot, the first and the last included."""

    snapshot: np.ndarray = column("Snapshot", "", "its number, from 0 on")
    radius: np.ndarray = column(
        "r", "", "distance from the last over that of the first from the last"
    )
    angle: np.ndarray = column(
        "θ", "radians", "in radians, at the last, from the first; NaN for the last itself"
    )
    first: np.ndarray = column(
        "First component",
        "",
        "coordinate along the first principal component, in units of distance",
    )
    second: np.ndarray = column("Second component")
    step: np.ndarray = column(
        "Step", "", "distance from the snapshot before; NaN for the first"
    )
    first_share: float = scalar(
        "First share", "", "part of the snapshots' variance along the first component"
    )
    second_share: float = scalar("Second share")
    distance: float = scalar("Distance", "", "between the first and the last snapshot")

    def sentences(self) -> list[str]:
        """What was found, with its numbers."""
        share, way = self.first_share + self.second_share, np.nansum(self.step)
        return [
            f"two components hold {share:.0%} of the variance of {len(self)} snapshots",
            f"the way is {way / self.distance:.3g} times as long as the distance between its "
            "ends",
        ]


@result_type("projection")
class Projection(Result):
    """Snapshots projected onto a plane through the weights; one row for each."""

    snapshot: np.ndarray = column("Snapshot", "", "its number, from 0 on")
    a: np.ndarray = column("A", "", "along the plane's first direction, in its units")
    b: np.ndarray = column("B")
    share: np.ndarray = column(
        "Share", "", "part of the squared distance from the plane's origin within the plane"
    )


def trajectory(
    model: nn.Module, snapshots: Sequence[State], *, provenance: Provenance | None = None
) -> Trajectory:
    """The way of the weights, as polar coordinates and as principal components.

    With w_t the parameters of snapshot t, in order, and T the last: radius |w_t - w_T| / |w_0 -
    w_T| and the angle between w_t - w_T and w_0 - w_T. The components are those of all
    snapshots about their mean. Buffers do not count.

    Costs the memory of all snapshots, and one inner product for each two of them.

    Args:
        model: which parameters there are; its own weights do not count.
        snapshots: state dicts of this architecture, in the order of training.
        provenance: what is known of the model.

    Raises:
        InputError: if there are fewer than 3, they do not fit the model, or the first and the
            last are the same.
    """
    gram = _gram(model, snapshots)
    squares = gram.diagonal()  # squared distances from the last
    if squares[0] == 0:
        raise InputError("the first and the last snapshot are the same; name them in order")
    distance = np.sqrt(squares)
    with np.errstate(invalid="ignore", divide="ignore"):
        cosine = gram[0] / (distance[0] * distance)
    centred = gram - gram.mean(0) - gram.mean(1)[:, None] + gram.mean()
    values, vectors = np.linalg.eigh(centred)
    values, vectors = values[::-1].clip(0), vectors[:, ::-1]
    scores = vectors * np.sqrt(values)
    scores *= np.where(scores[0] > 0, -1, 1)  # the first snapshot stands at the left, below
    between = squares[1:] + squares[:-1] - 2 * gram.diagonal(1)
    return Trajectory(
        snapshot=np.arange(len(snapshots)),
        radius=distance / distance[0],
        angle=np.where(distance > 0, np.arccos(cosine.clip(-1, 1)), np.nan),
        first=scores[:, 0],
        second=scores[:, 1],
        step=np.append(np.nan, np.sqrt(between.clip(0))),
        first_share=float(values[0] / values.sum()),
        second_share=float(values[1] / values.sum()),
        distance=float(distance[0]),
        provenance=provenance or Provenance(),
    )


def project(
    model: nn.Module,
    plane: Plane,
    snapshots: Sequence[State],
    *,
    provenance: Provenance | None = None,
) -> Projection:
    """Where in a plane through the model's weights the snapshots lie, or come nearest to it.

    The point of the plane that is nearest to a snapshot over the parameters that the plane
    moves. `share` says how much of the way from the model's weights, over all parameters, that
    is: near 0, the snapshot lies far off the plane, and the loss drawn at its point is not its
    own.

    Raises:
        InputError: if a snapshot does not fit the model.
    """
    own = {name: parameter for name, parameter, _ in owned(model)}
    axes: list[Direction] = [d for d in (plane.first, plane.second) if d]
    gram = np.array([[inner(u, v) for v in axes] for u in axes])
    rows = []
    for number, state in enumerate(snapshots):
        step = difference(state, own, f"snapshot {number}")
        along = np.array([inner(axis, step) for axis in axes])
        place = np.linalg.solve(gram, along)
        whole = inner(step, step)
        share = float(along @ place) / whole if whole > 0 else 1.0
        rows.append((number, *place, *[0.0] * (2 - len(axes)), min(share, 1.0)))
    columns = (np.array(column) for column in zip(*rows, strict=True))
    return Projection(*columns, provenance=provenance or Provenance())


def principal_plane(
    model: nn.Module, snapshots: Sequence[State], *, points: int = 21, margin: float = 0.25
) -> Plane:
    """The plane through the model's weights along the two main directions of a path.

    They are the principal components of the snapshots' differences from the model's weights,
    which are taken for the end of the path, and have the length of the longest of these along
    each: the path lies within [-1, 1].

    Raises:
        InputError: as `trajectory`, or if the path lies in one line.

    Source: Li et al. (2018), Visualizing the loss landscape of neural nets, sec. 7.2.
    """
    own = {name: parameter for name, parameter, _ in owned(model)}
    if len(snapshots) < 2:
        raise _too_few(len(snapshots) + 1)
    steps = [difference(s, own, f"snapshot {i}") for i, s in enumerate(snapshots)]
    gram = np.array([[inner(u, v) for v in steps] for u in steps])
    values, vectors = np.linalg.eigh(gram)
    if values[-2] <= 1e-8 * values[-1]:
        raise InputError("the snapshots lie in one line; a plane needs a path that bends")
    directions: list[Direction] = []
    for weights, value in ((vectors[:, -1], values[-1]), (vectors[:, -2], values[-2])):
        reach = np.abs(weights * value**0.5).max() / value**0.5
        scale = [float(w) * float(reach) for w in weights]
        directions.append(
            {
                name: torch.stack([w * s[name] for w, s in zip(scale, steps, strict=True)]).sum(
                    0
                )
                for name in own
            }
        )
    return plane_along(model, directions[0], directions[1], points=points, reach=1 + margin)


def _gram(model: nn.Module, snapshots: Sequence[State]) -> Float[np.ndarray, "n n"]:
    """Inner products of the snapshots' differences from the last one."""
    if len(snapshots) < _FEWEST:
        raise _too_few(len(snapshots))
    own = {name: parameter for name, parameter, _ in owned(model)}
    difference(snapshots[-1], own, f"snapshot {len(snapshots) - 1}")
    end = {name: snapshots[-1][name] for name in own}
    steps = [difference(s, end, f"snapshot {i}") for i, s in enumerate(snapshots)]
    gram = np.zeros((len(steps), len(steps)))
    for name in own:  # one parameter at a time: all in double precision would be too much
        flat = torch.stack([step[name].flatten().double() for step in steps])
        gram += (flat @ flat.T).numpy(force=True)
    return gram


def _too_few(number: int) -> InputError:
    return InputError(
        f"got {number} snapshots; a path needs at least {_FEWEST}, in the order of training"
    )
