"""Results: what was measured, as tables of NumPy columns with units.

Importing the package declares every built-in type for `Result.load`.
"""

from importlib import import_module
from pkgutil import iter_modules

from visprism.results.differences import Differences, paired_differences
from visprism.results.per_image import PerImage

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

__all__ = ["Differences", "PerImage", "paired_differences"]
