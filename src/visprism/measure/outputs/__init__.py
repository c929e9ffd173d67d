"""Outputs: what a model's predictions tell."""

from visprism.measure.outputs.outcomes import Outcomes, outcomes
from visprism.measure.outputs.predict import predict
from visprism.measure.outputs.predictions import Predictions
from visprism.measure.outputs.reliability import (
    Reliability,
    RiskCoverage,
    reliability,
    risk_coverage,
)
from visprism.measure.outputs.temperature import Temperature, temperature
from visprism.measure.outputs.uncertainty import Uncertainty, uncertainty

__all__ = [
    "Outcomes",
    "Predictions",
    "Reliability",
    "RiskCoverage",
    "Temperature",
    "Uncertainty",
    "outcomes",
    "predict",
    "reliability",
    "risk_coverage",
    "temperature",
    "uncertainty",
]
