"""The zoo: one architecture family per file, one registered function per size."""

from visprism.registry import Registry

MODELS = Registry("model")
