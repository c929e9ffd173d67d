"""Weights alone: what can be read off a model's parameters, without an image."""

from visprism.measure.weights.patch_filters import PatchFilters, patch_filters
from visprism.measure.weights.position_embeddings import (
    PositionalSimilarity,
    positional_similarity,
)
from visprism.measure.weights.relative_scores import RelativeScores, relative_scores

__all__ = [
    "PatchFilters",
    "PositionalSimilarity",
    "RelativeScores",
    "patch_filters",
    "positional_similarity",
    "relative_scores",
]
