"""Weights: what the parameters of a model show without any image."""

from visprism.measure.weights.patch_filters import patch_filters
from visprism.measure.weights.position_embeddings import positional_similarity
from visprism.measure.weights.relative_scores import relative_score_tables, relative_scores

__all__ = ["patch_filters", "positional_similarity", "relative_score_tables", "relative_scores"]
