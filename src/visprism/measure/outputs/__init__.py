"""Measurements of predictions: calibration, robustness, ablation, and perturbed images."""

from visprism.measure.outputs.adversarial import adversarial
from visprism.measure.outputs.block_ablation import ablation
from visprism.measure.outputs.calibration import calibration
from visprism.measure.outputs.categories import classes_of
from visprism.measure.outputs.differing_pictures import differing_pictures
from visprism.measure.outputs.fourier_sensitivity import fourier_sensitivity
from visprism.measure.outputs.frequency_noise import frequency_noise
from visprism.measure.outputs.perturbation_ball import ATTACKS, Attack
from visprism.measure.outputs.reliability import reliability, risk_coverage
from visprism.measure.outputs.robustness import robustness
from visprism.measure.outputs.shape_bias import by_category, shape_bias, shape_bias_by_image
from visprism.measure.outputs.stability import stability
from visprism.measure.outputs.temperature import temperature
from visprism.passes.outcomes import outcomes
from visprism.passes.predict import predict
from visprism.passes.predictions import Predictions

__all__ = [
    "ATTACKS",
    "Attack",
    "Predictions",
    "ablation",
    "adversarial",
    "by_category",
    "calibration",
    "classes_of",
    "differing_pictures",
    "fourier_sensitivity",
    "frequency_noise",
    "outcomes",
    "predict",
    "reliability",
    "risk_coverage",
    "robustness",
    "shape_bias",
    "shape_bias_by_image",
    "stability",
    "temperature",
]
