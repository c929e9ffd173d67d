"""Curvature: the second derivatives of the loss with respect to the parameters."""

from visprism.measure.loss.curvature.eigenvalues import (
    Eigenvalues,
    top_eigenpairs,
    top_eigenvalues,
)
from visprism.measure.loss.curvature.hessian_spectrum import (
    HessianSpectrum,
    hessian_spectrum,
    joined,
)
from visprism.measure.loss.curvature.hessian_summary import (
    HessianCurves,
    HessianTally,
    hessian_curves,
    hessian_tally,
)
from visprism.measure.loss.curvature.product_cost import ProductCost, product_cost
from visprism.measure.loss.curvature.result_fields import Curvature
from visprism.measure.loss.curvature.spectral_density import (
    SpectralDensity,
    Trace,
    spectral_density,
    trace,
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
