"""Measurements of feature maps, the loss, predictions and weights."""
