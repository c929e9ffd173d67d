"""Curvature of a landscape at the model's weights, compared with the Hessian."""

from collections.abc import Sequence

import numpy as np
import torch

from visprism.core.errors import InputError
from visprism.measure.loss.landscape.planes import Plane
from visprism.measure.loss.objective import Objective
from visprism.measure.loss.products import Products
from visprism.results.landscape import Landscape, OriginCurvature

# Central differences of the first and the second derivative, by the number of points per side.
_STENCILS = {
    1: (np.array([-1, 0, 1]) / 2, np.array([1, -2, 1])),
    2: (np.array([1, -8, 0, 8, -1]) / 12, np.array([-1, 16, -30, 16, -1]) / 12),
}


def curvature_at_origin(
    landscape: Landscape,
    planes: Sequence[Plane] = (),
    objective: Objective | None = None,
) -> OriginCurvature:
    """The second derivative of the NLL along each direction, from the points next to 0.

    With f the loss at -2h ... 2h, (-f(-2h) + 16 f(-h) - 30 f(0) + 16 f(h) - f(2h)) / 12 h²,
    which is exact for polynomials up to degree 5; from three points where the grid has no five.
    Planes whose grid does not contain the model's weights are omitted. Where the exact value
    differs, the curvature changes within a grid step: a finer grid is closer.

    Cost: with an objective, one Hessian product for each direction.

    Args:
        landscape: the measured surfaces.
        planes: their planes, for the exact values.
        objective: of the same model and data, over all parameters and without weight decay.

    Source: Abramowitz and Stegun (1972), Handbook of mathematical functions, 25.3.24.
    """
    rows = []
    for pair in np.unique(landscape.pair).tolist():
        plane = landscape.select(landscape.pair == pair)
        for name, along, across in (("a", plane.a, plane.b), ("b", plane.b, plane.a)):
            line = np.abs(across) < 1e-12
            order = np.argsort(along[line])
            x, f = along[line][order], plane.nll[line][order]
            middle = len(x) // 2
            if len(x) < 3 or abs(x[middle]) > 1e-12:
                continue
            h, reach = x[middle + 1] - x[middle], min(2, middle)
            near = f[middle - reach : middle + reach + 1]
            slope, second = (weights @ near for weights in _STENCILS[reach])
            rows.append((pair, name, slope / h, second / h**2, h))
    if not rows:
        raise InputError(
            "landscape must contain the model's weights at the center of a plane. Use random "
            "directions."
        )
    pair, direction, slope, fitted, step = (np.array(c) for c in zip(*rows, strict=True))
    hessian = np.full(len(rows), np.nan)
    if objective is not None:
        hessian = _exact([row[:2] for row in rows], planes, objective)
    return OriginCurvature(
        pair=pair,
        direction=direction,
        slope=slope,
        fitted=fitted,
        hessian=hessian,
        step=step,
        provenance=landscape.provenance,
    )


def _exact(
    wanted: Sequence[tuple[int, str]], planes: Sequence[Plane], objective: Objective
) -> np.ndarray:
    """dᵀHd for each direction."""
    if objective.weight_decay:
        raise InputError(
            f"objective must have weight_decay=0, as the NLL of a landscape has, got "
            f"{objective.weight_decay}"
        )
    if max(pair for pair, _ in wanted) >= len(planes):
        raise InputError(
            f"planes must be those of the landscape ({max(p for p, _ in wanted) + 1}), got "
            f"{len(planes)}"
        )
    vectors = []
    for pair, name in wanted:
        step = planes[pair].first if name == "a" else planes[pair].second
        parts = (step.get(n, torch.zeros_like(objective.tensors[n])) for n in objective.names)
        vectors.append(torch.cat([part.flatten() for part in parts]).to(objective.theta))
    rows = torch.stack(vectors)
    products = Products(objective)(rows[None])[0]
    return (rows.double() * products.double()).sum(1).numpy(force=True)
