"""Results: what was measured, as tables of NumPy columns with units."""

from visprism.results.per_image import Differences, PerImage, paired_differences

__all__ = ["Differences", "PerImage", "paired_differences"]
