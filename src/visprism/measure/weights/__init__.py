"""Weights: what the parameters of a model show without any image."""
