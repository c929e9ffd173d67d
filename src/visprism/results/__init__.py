"""Results: what was measured, as tables of NumPy columns with units.

Importing the package declares every built-in type for `Result.load`, and the package has every
declared type by name: ``visprism.results.Spectrum``.
"""

from importlib import import_module
from pkgutil import iter_modules

from visprism.results.base import Result, result_types
from visprism.results.differences import Differences, paired_differences
from visprism.results.per_image import PerImage

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

__all__ = ["Differences", "PerImage", "paired_differences"]


def __getattr__(name: str) -> type[Result]:
    """A declared type of result, also of a plug-in."""
    for declared in result_types().values():
        if declared.__name__ == name:
            return declared
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *(declared.__name__ for declared in result_types().values())})
