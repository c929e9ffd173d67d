"""Analyses of predictions: clean, corrupted and attacked."""
