"""Analyses of weights."""
