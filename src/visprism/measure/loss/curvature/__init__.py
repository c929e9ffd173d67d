"""Curvature: second derivatives of the loss with respect to the parameters."""

from visprism.measure.loss.curvature.by_block import hessian_by_block, traces_by_part
from visprism.measure.loss.curvature.eigenvalues import top_eigenpairs, top_eigenvalues
from visprism.measure.loss.curvature.hessian_spectrum import hessian_spectrum
from visprism.measure.loss.curvature.monitor import CurvatureMonitor
from visprism.measure.loss.curvature.product_cost import (
    ProductCost,
    product_cost,
    seconds_per_product,
)
from visprism.measure.loss.curvature.spectral_density import spectral_density, trace
from visprism.results.hessian import HessianCurves, HessianSpectrum
from visprism.results.hessian_summary import HessianSummary
from visprism.results.loss import Curvature, Eigenvalues, SpectralDensity, Trace
from visprism.results.training_curvature import TrainingCurvature

__all__ = [
    "Curvature",
    "CurvatureMonitor",
    "Eigenvalues",
    "HessianCurves",
    "HessianSpectrum",
    "HessianSummary",
    "ProductCost",
    "SpectralDensity",
    "Trace",
    "TrainingCurvature",
    "hessian_by_block",
    "hessian_spectrum",
    "product_cost",
    "seconds_per_product",
    "spectral_density",
    "top_eigenpairs",
    "top_eigenvalues",
    "trace",
    "traces_by_part",
]
