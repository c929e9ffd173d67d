"""Curvature: the second derivatives of the loss with respect to the parameters."""

from visprism.measure.curvature.cost import ProductCost, product_cost
from visprism.measure.curvature.density import SpectralDensity, Trace, spectral_density, trace
from visprism.measure.curvature.eigenvalues import Eigenvalues, top_eigenpairs, top_eigenvalues
from visprism.measure.curvature.facts import Curvature
from visprism.measure.curvature.hessian import HessianSpectrum, hessian_spectrum, joined
from visprism.measure.curvature.hessian_tally import (
    HessianCurves,
    HessianTally,
    hessian_curves,
    hessian_tally,
)

__all__ = [
    "Curvature",
    "Eigenvalues",
    "HessianCurves",
    "HessianSpectrum",
    "HessianTally",
    "ProductCost",
    "SpectralDensity",
    "Trace",
    "hessian_curves",
    "hessian_spectrum",
    "hessian_tally",
    "joined",
    "product_cost",
    "spectral_density",
    "top_eigenpairs",
    "top_eigenvalues",
    "trace",
]
