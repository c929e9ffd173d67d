"""Landscapes: the loss over planes of parameters, and the way of training on them."""

from visprism.measure.loss.landscape.checkpoint import discard_partial
from visprism.measure.loss.landscape.grid import landscape
from visprism.measure.loss.landscape.origin_curvature import (
    OriginCurvature,
    curvature_at_origin,
)
from visprism.measure.loss.landscape.planes import Plane, plane_along, random_planes
from visprism.measure.loss.landscape.planes_through import plane_through
from visprism.measure.loss.landscape.surface import Landscape
from visprism.measure.loss.landscape.trajectory import (
    Projection,
    Trajectory,
    principal_plane,
    project,
    trajectory,
)

__all__ = [
    "Landscape",
    "OriginCurvature",
    "Plane",
    "Projection",
    "Trajectory",
    "curvature_at_origin",
    "discard_partial",
    "landscape",
    "plane_along",
    "plane_through",
    "principal_plane",
    "project",
    "random_planes",
    "trajectory",
]
