"""Outputs: what a model's predictions tell."""

from visprism.measure.outputs.adversarial import Adversarial, adversarial
from visprism.measure.outputs.block_ablation import ablation
from visprism.measure.outputs.calibration import Uncertainty, uncertainty
from visprism.measure.outputs.categories import classes_of
from visprism.measure.outputs.corruption_errors import (
    ALEXNET,
    CorruptionErrors,
    corruption_errors,
)
from visprism.measure.outputs.fourier_sensitivity import (
    FourierSensitivity,
    fourier_sensitivity,
)
from visprism.measure.outputs.frequency_noise import FrequencyRobustness, frequency_noise
from visprism.measure.outputs.outcomes import Outcomes, outcomes
from visprism.measure.outputs.perturbation_ball import ATTACKS, Attack
from visprism.measure.outputs.predict import predict
from visprism.measure.outputs.predictions import Predictions
from visprism.measure.outputs.reliability import (
    Reliability,
    RiskCoverage,
    reliability,
    risk_coverage,
)
from visprism.measure.outputs.robustness import CLEAN, Robustness, robustness
from visprism.measure.outputs.shape_bias import ShapeBias, by_category, shape_bias
from visprism.measure.outputs.stability import Stability, stability
from visprism.measure.outputs.temperature import Temperature, temperature

__all__ = [
    "ALEXNET",
    "ATTACKS",
    "CLEAN",
    "Adversarial",
    "Attack",
    "CorruptionErrors",
    "FourierSensitivity",
    "FrequencyRobustness",
    "Outcomes",
    "Predictions",
    "Reliability",
    "RiskCoverage",
    "Robustness",
    "ShapeBias",
    "Stability",
    "Temperature",
    "Uncertainty",
    "ablation",
    "adversarial",
    "by_category",
    "classes_of",
    "corruption_errors",
    "fourier_sensitivity",
    "frequency_noise",
    "outcomes",
    "predict",
    "reliability",
    "risk_coverage",
    "robustness",
    "shape_bias",
    "stability",
    "temperature",
    "uncertainty",
]
