"""Results: what was measured, as tables of NumPy columns with units."""

from visprism.results.harmonize import ReplacementSearch
from visprism.results.training import History

__all__ = ["History", "ReplacementSearch"]
