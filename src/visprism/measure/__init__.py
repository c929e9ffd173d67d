"""Measurements: of feature maps, in one pass over the data."""
