"""Analyses of attention."""
