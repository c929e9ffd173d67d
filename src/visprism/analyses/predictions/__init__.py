"""Analyses of predictions, and of predictions under changed images, weights and blocks."""
