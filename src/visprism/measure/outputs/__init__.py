"""Measurements of predictions: calibration, robustness, ablation, and perturbed images."""
