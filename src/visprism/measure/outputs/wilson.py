"""Wilson's interval of a proportion stands in `visprism.core.statistics`."""

from visprism.core.statistics import wilson

__all__ = ["wilson"]
