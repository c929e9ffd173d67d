"""Analyses of the loss as a function of the parameters."""

from visprism.measure.parameters.curvature import Curvature
from visprism.measure.parameters.density import SpectralDensity, Trace, spectral_density, trace
from visprism.measure.parameters.eigenvalues import (
    Eigenvalues,
    top_eigenpairs,
    top_eigenvalues,
)
from visprism.measure.parameters.hessian import HessianSpectrum, hessian_spectrum, joined
from visprism.measure.parameters.hessian_tally import (
    HessianCurves,
    HessianTally,
    hessian_curves,
    hessian_tally,
)
from visprism.measure.parameters.losses import Loss, cross_entropy, smoothed_cross_entropy
from visprism.measure.parameters.objective import Objective
from visprism.measure.parameters.products import Products
from visprism.measure.parameters.selection import Selection

__all__ = [
    "Curvature",
    "Eigenvalues",
    "HessianCurves",
    "HessianSpectrum",
    "HessianTally",
    "Loss",
    "Objective",
    "Products",
    "Selection",
    "SpectralDensity",
    "Trace",
    "cross_entropy",
    "hessian_curves",
    "hessian_spectrum",
    "hessian_tally",
    "joined",
    "smoothed_cross_entropy",
    "spectral_density",
    "top_eigenpairs",
    "top_eigenvalues",
    "trace",
]
