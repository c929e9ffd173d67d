"""Analyses of the loss: curvature, sharpness and landscapes."""
