"""Trajectories of a model's weights during training, from snapshots.

Two numbers per snapshot cannot show a path through millions of dimensions; the results state
the omitted fraction. They do not show how a network learns.

Source: Park and Kim (2022), How do vision transformers work?, fig. 1c, which its authors have
since withdrawn.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from visprism.core.errors import InputError
from visprism.core.run import DEFAULT_RUN, Run
from visprism.measure.loss.landscape.directions import Direction, named_parameters
from visprism.measure.loss.landscape.planes import Plane, plane_along
from visprism.measure.loss.landscape.vectors import difference, inner
from visprism.results.trajectory import Projection, Trajectory

State = Mapping[str, Tensor]  # such as a state dict
_MIN_SNAPSHOTS = 3  # two are always on a line


def trajectory(
    model: nn.Module, snapshots: Sequence[State], *, run: Run = DEFAULT_RUN
) -> Trajectory:
    """The trajectory of the weights, in polar coordinates and principal components.

    With w_t the parameters of snapshot t, in order, and T the last: radius |w_t - w_T| / |w_0 -
    w_T| and the angle between w_t - w_T and w_0 - w_T. The components are those of all
    snapshots around their mean. Buffers are not included.

    Cost: the memory of all snapshots, and one inner product for each pair of them.

    Args:
        model: defines the parameters; its weights are not used.
        snapshots: state dicts of this architecture, in the order of training.
        run: provenance.
    """
    gram = _gram(model, snapshots)
    squares = gram.diagonal()  # squared distances from the last
    if squares[0] == 0:
        raise InputError(
            "the first and the last snapshot must differ. Pass them in the order of training."
        )
    distance = np.sqrt(squares)
    with np.errstate(invalid="ignore", divide="ignore"):
        cosine = gram[0] / (distance[0] * distance)
    centered = gram - gram.mean(0) - gram.mean(1)[:, None] + gram.mean()
    values, vectors = np.linalg.eigh(centered)
    values, vectors = values[::-1].clip(0), vectors[:, ::-1]
    scores = vectors * np.sqrt(values)
    scores *= np.where(scores[0] > 0, -1, 1)  # the first snapshot is at the lower left
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
        provenance=run.provenance,
    )


def project(
    model: nn.Module,
    plane: Plane,
    snapshots: Sequence[State],
    *,
    run: Run = DEFAULT_RUN,
) -> Projection:
    """Orthogonal projection of snapshots onto a plane through the model's weights.

    The projection uses the parameters that the plane moves. `share` is the fraction of the
    squared distance from the model's weights, over all parameters, within the plane: near 0 the
    snapshot is far from the plane, and the loss at its projection is not its loss.
    """
    if not snapshots:
        raise InputError("snapshots must have at least one state dictionary, got none")
    parameters = {name: parameter for name, parameter, _ in named_parameters(model)}
    axes: list[Direction] = [d for d in (plane.first, plane.second) if d]
    gram = np.array([[inner(u, v) for v in axes] for u in axes])
    rows = []
    for number, state in enumerate(snapshots):
        step = difference(state, parameters, f"snapshot {number}")
        products = np.array([inner(axis, step) for axis in axes])
        coordinates = np.linalg.solve(gram, products)
        squared = inner(step, step)
        share = float(products @ coordinates) / squared if squared > 0 else 1.0
        rows.append((number, *coordinates, *[0.0] * (2 - len(axes)), min(share, 1.0)))
    snapshot, a, b, shares = (np.array(column) for column in zip(*rows, strict=True))
    return Projection(snapshot=snapshot, a=a, b=b, share=shares, provenance=run.provenance)


def principal_plane(
    model: nn.Module, snapshots: Sequence[State], *, points: int = 21, margin: float = 0.25
) -> Plane:
    """The plane through the model's weights along the two principal directions of a path.

    They are the principal components of the differences of the snapshots from the model's
    weights, the end of the path, scaled so that the path lies within [-1, 1].

    Source: Li et al. (2018), Visualizing the loss landscape of neural nets, sec. 7.2.
    """
    parameters = {name: parameter for name, parameter, _ in named_parameters(model)}
    if len(snapshots) < 2:
        raise _too_few(len(snapshots) + 1)
    steps = [difference(s, parameters, f"snapshot {i}") for i, s in enumerate(snapshots)]
    gram = np.array([[inner(u, v) for v in steps] for u in steps])
    values, vectors = np.linalg.eigh(gram)
    if values[-2] <= 1e-8 * values[-1]:
        raise InputError("snapshots must span a plane, got snapshots on a straight line")
    directions: list[Direction] = []
    for weights, value in ((vectors[:, -1], values[-1]), (vectors[:, -2], values[-2])):
        reach = np.abs(weights * value**0.5).max() / value**0.5
        scale = [float(w) * float(reach) for w in weights]
        directions.append(
            {
                name: torch.stack([w * s[name] for w, s in zip(scale, steps, strict=True)]).sum(
                    0
                )
                for name in parameters
            }
        )
    return plane_along(model, directions[0], directions[1], points=points, reach=1 + margin)


def _gram(model: nn.Module, snapshots: Sequence[State]) -> Float[np.ndarray, "n n"]:
    """Inner products of the snapshots' differences from the last one."""
    if len(snapshots) < _MIN_SNAPSHOTS:
        raise _too_few(len(snapshots))
    parameters = {name: parameter for name, parameter, _ in named_parameters(model)}
    difference(snapshots[-1], parameters, f"snapshot {len(snapshots) - 1}")
    end = {name: snapshots[-1][name] for name in parameters}
    steps = [difference(s, end, f"snapshot {i}") for i, s in enumerate(snapshots)]
    gram = np.zeros((len(steps), len(steps)))
    for name in parameters:  # one at a time limits the memory of double precision
        flat = torch.stack([step[name].flatten().double() for step in steps])
        gram += (flat @ flat.T).numpy(force=True)
    return gram


def _too_few(number: int) -> InputError:
    return InputError(
        f"snapshots must be at least {_MIN_SNAPSHOTS}, in the order of training, got {number}"
    )
