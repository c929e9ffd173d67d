"""Runs of a dissected model: hooks, interception, attention weights, ablation."""
