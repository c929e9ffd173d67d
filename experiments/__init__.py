"""Experiments with visprism, outside of the package, on its public names only."""
