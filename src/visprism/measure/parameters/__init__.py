"""Analyses of the loss as a function of the parameters."""

from visprism.measure.parameters.losses import Loss, cross_entropy, smoothed_cross_entropy
from visprism.measure.parameters.objective import Objective
from visprism.measure.parameters.selection import Selection

__all__ = ["Loss", "Objective", "Selection", "cross_entropy", "smoothed_cross_entropy"]
