"""Weights alone: what can be read off a model's parameters, without an image."""

from visprism.measure.weights.filters import PatchFilters, patch_filters
from visprism.measure.weights.positions import PositionalSimilarity, positional_similarity

__all__ = ["PatchFilters", "PositionalSimilarity", "patch_filters", "positional_similarity"]
