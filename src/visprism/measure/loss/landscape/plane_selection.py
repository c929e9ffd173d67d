"""Selection of planes: random, along Hessian eigenvectors, or through checkpoints."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Literal

from torch import Tensor, nn

from visprism.core.run import DEFAULT_RUN, Run
from visprism.measure.loss.curvature import top_eigenpairs
from visprism.measure.loss.landscape.planes import Plane, plane_along, random_planes
from visprism.measure.loss.landscape.planes_through import plane_through
from visprism.measure.loss.landscape.trajectory import principal_plane, project
from visprism.measure.loss.objective import Objective
from visprism.results.trajectory import Projection

_MAX_THROUGH = 2  # checkpoints beside the model that span a plane
_EIGENVECTOR_BATCHES = 8  # batches whose Hessian gives the eigenvectors


def planes_around(
    model: nn.Module,
    batches: Iterable,
    checkpoints: Sequence[Mapping[str, Tensor]] = (),
    *,
    directions: Literal["random", "hessian"] = "random",
    pairs: int = 1,
    points: int = 21,
    reach: float = 1.0,
    normalization: str = "filter",
    perturb_positions: bool = False,
    run: Run = DEFAULT_RUN,
) -> tuple[list[Plane], Projection | None]:
    """Planes through the model's weights, and the projection of checkpoints onto the plane.

    With one or two checkpoints the plane goes through them; with more it holds the principal
    directions of their path. Otherwise the directions are random, or the eigenvectors of the
    two largest Hessian eigenvalues of the first 8 batches.

    Cost: for "hessian" about 25 Hessian-vector products, otherwise none.

    Args:
        model: its weights are the origin.
        batches: of (images, targets), for the eigenvectors.
        checkpoints: state dicts of the same architecture.
        directions: where there are no checkpoints.
        pairs: number of random planes.
        points: grid points along each axis; odd.
        reach: half width of the grid.
        normalization: of random directions; see `gaussian`.
        perturb_positions: whether random directions also change position embeddings.
        run: seed, device, progress and deadline.
    """
    if checkpoints:
        return _through(model, checkpoints, points, run)
    if directions == "hessian":
        objective = Objective(model, list(islice(batches, _EIGENVECTOR_BATCHES)), run=run)
        _, vectors = top_eigenpairs(objective, k=2, which="LA", tol=1e-2)
        first, second = (objective.unflatten(vector) for vector in vectors)
        return [plane_along(model, first, second, points=points, reach=reach)], None
    planes = random_planes(
        model,
        pairs=pairs,
        points=points,
        reach=reach,
        normalization=normalization,
        perturb_positions=perturb_positions,
        seed=run.seed,
    )
    return planes, None


def _through(
    model: nn.Module, checkpoints: Sequence[Mapping[str, Tensor]], points: int, run: Run
) -> tuple[list[Plane], Projection]:
    states = [*checkpoints]
    if len(states) > _MAX_THROUGH:
        plane = principal_plane(model, states, points=points)
        path = [*states, model.state_dict()]
    else:
        plane = plane_through(model, states, points=points)
        path = [*states[:1], model.state_dict(), *states[1:]]
    return [plane], project(model, plane, path, run=run)
