"""Landscapes: the loss over planes of parameters, and the way of training on them."""

from visprism.measure.landscape.centre import CentreCurvature, centre_curvature
from visprism.measure.landscape.landscape import landscape
from visprism.measure.landscape.partial import discard_partial
from visprism.measure.landscape.planes import Plane, plane_along, random_planes
from visprism.measure.landscape.surface import Landscape
from visprism.measure.landscape.through import plane_through
from visprism.measure.landscape.trajectory import (
    Projection,
    Trajectory,
    principal_plane,
    project,
    trajectory,
)

__all__ = [
    "CentreCurvature",
    "Landscape",
    "Plane",
    "Projection",
    "Trajectory",
    "centre_curvature",
    "discard_partial",
    "landscape",
    "plane_along",
    "plane_through",
    "principal_plane",
    "project",
    "random_planes",
    "trajectory",
]
