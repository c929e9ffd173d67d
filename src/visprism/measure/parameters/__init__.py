"""Analyses of the loss as a function of the parameters."""

from visprism.measure.parameters.curvature import Curvature
from visprism.measure.parameters.density import SpectralDensity, Trace, spectral_density, trace
from visprism.measure.parameters.eigenvalues import (
    Eigenvalues,
    top_eigenpairs,
    top_eigenvalues,
)
from visprism.measure.parameters.losses import Loss, cross_entropy, smoothed_cross_entropy
from visprism.measure.parameters.objective import Objective
from visprism.measure.parameters.products import Products
from visprism.measure.parameters.selection import Selection

__all__ = [
    "Curvature",
    "Eigenvalues",
    "Loss",
    "Objective",
    "Products",
    "Selection",
    "SpectralDensity",
    "Trace",
    "cross_entropy",
    "smoothed_cross_entropy",
    "spectral_density",
    "top_eigenpairs",
    "top_eigenvalues",
    "trace",
]
