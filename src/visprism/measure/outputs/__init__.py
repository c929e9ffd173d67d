"""Outputs: what a model's predictions tell."""

from visprism.measure.outputs.corruption_errors import (
    ALEXNET,
    CorruptionErrors,
    corruption_errors,
)
from visprism.measure.outputs.outcomes import Outcomes, outcomes
from visprism.measure.outputs.predict import predict
from visprism.measure.outputs.predictions import Predictions
from visprism.measure.outputs.reliability import (
    Reliability,
    RiskCoverage,
    reliability,
    risk_coverage,
)
from visprism.measure.outputs.robustness import CLEAN, Robustness, robustness
from visprism.measure.outputs.stability import Stability, stability
from visprism.measure.outputs.temperature import Temperature, temperature
from visprism.measure.outputs.uncertainty import Uncertainty, uncertainty

__all__ = [
    "ALEXNET",
    "CLEAN",
    "CorruptionErrors",
    "Outcomes",
    "Predictions",
    "Reliability",
    "RiskCoverage",
    "Robustness",
    "Stability",
    "Temperature",
    "Uncertainty",
    "corruption_errors",
    "outcomes",
    "predict",
    "reliability",
    "risk_coverage",
    "robustness",
    "stability",
    "temperature",
    "uncertainty",
]
