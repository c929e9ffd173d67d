"""Effective receptive fields: which pixels a block's centre position answers to."""

from visprism.measure.receptive_field.extent import ReceptiveField, ReceptiveMaps
from visprism.measure.receptive_field.gradients import receptive_field

__all__ = ["ReceptiveField", "ReceptiveMaps", "receptive_field"]
