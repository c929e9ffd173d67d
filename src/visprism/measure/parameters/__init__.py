"""Analyses of the loss as a function of the parameters."""

from visprism.measure.parameters.centre import CentreCurvature, centre_curvature
from visprism.measure.parameters.curvature import Curvature
from visprism.measure.parameters.density import SpectralDensity, Trace, spectral_density, trace
from visprism.measure.parameters.eigenvalues import Eigenvalues, top_eigenpairs, top_eigenvalues
from visprism.measure.parameters.hessian import HessianSpectrum, hessian_spectrum, joined
from visprism.measure.parameters.hessian_tally import (
    HessianCurves,
    HessianTally,
    hessian_curves,
    hessian_tally,
)
from visprism.measure.parameters.landscape import landscape
from visprism.measure.parameters.losses import Loss, cross_entropy, smoothed_cross_entropy
from visprism.measure.parameters.objective import Objective
from visprism.measure.parameters.partial import discard_partial
from visprism.measure.parameters.planes import Plane, plane_along, random_planes
from visprism.measure.parameters.products import Products
from visprism.measure.parameters.selection import Selection
from visprism.measure.parameters.sharpness import Sharpness, sharpness
from visprism.measure.parameters.surface import Landscape
from visprism.measure.parameters.through import plane_through
from visprism.measure.parameters.trajectory import (
    Projection,
    Trajectory,
    principal_plane,
    project,
    trajectory,
)

__all__ = [
    "CentreCurvature",
    "Curvature",
    "Eigenvalues",
    "HessianCurves",
    "HessianSpectrum",
    "HessianTally",
    "Landscape",
    "Loss",
    "Objective",
    "Plane",
    "Products",
    "Projection",
    "Selection",
    "Sharpness",
    "SpectralDensity",
    "Trace",
    "Trajectory",
    "centre_curvature",
    "cross_entropy",
    "discard_partial",
    "hessian_curves",
    "hessian_spectrum",
    "hessian_tally",
    "joined",
    "landscape",
    "plane_along",
    "plane_through",
    "principal_plane",
    "project",
    "random_planes",
    "sharpness",
    "smoothed_cross_entropy",
    "spectral_density",
    "top_eigenpairs",
    "top_eigenvalues",
    "trace",
    "trajectory",
]
