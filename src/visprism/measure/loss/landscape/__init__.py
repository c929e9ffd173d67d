"""Loss landscapes: the loss over planes and circles, and the trajectory of training."""

from visprism.measure.loss.landscape.checkpoint import discard_partial
from visprism.measure.loss.landscape.grid import landscape, seconds_per_point
from visprism.measure.loss.landscape.origin_curvature import curvature_at_origin
from visprism.measure.loss.landscape.plane_selection import planes_around
from visprism.measure.loss.landscape.planes import Plane, plane_along, random_planes
from visprism.measure.loss.landscape.planes_through import plane_through
from visprism.measure.loss.landscape.rings import RADII, rings
from visprism.measure.loss.landscape.trajectory import principal_plane, project, trajectory
from visprism.results.landscape import Landscape, OriginCurvature, Rings
from visprism.results.trajectory import Projection, Trajectory

__all__ = [
    "RADII",
    "Landscape",
    "OriginCurvature",
    "Plane",
    "Projection",
    "Rings",
    "Trajectory",
    "curvature_at_origin",
    "discard_partial",
    "landscape",
    "plane_along",
    "plane_through",
    "planes_around",
    "principal_plane",
    "project",
    "random_planes",
    "rings",
    "seconds_per_point",
    "trajectory",
]
