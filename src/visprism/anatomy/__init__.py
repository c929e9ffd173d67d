"""Anatomy: a model as a sequence of blocks, which can be watched, replaced and ablated."""
