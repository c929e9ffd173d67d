"""Passes over a model: one over features, one over outputs, one with changed pixels."""
