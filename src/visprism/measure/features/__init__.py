"""Measurements of feature maps, by probes in one pass over the data."""
