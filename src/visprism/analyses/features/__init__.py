"""Analyses of feature maps and of representations."""
