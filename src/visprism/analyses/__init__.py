"""Analyses: one declaration each, from which commands, reports, plans and docs are made.

A file of this package holds an analysis: its declaration, computation, result and figures. All
register when `ANALYSES` is first read; a plug-in registers its own with the same decorator.
"""

from visprism.kit.analysis import ANALYSES, Analysis


def __getattr__(name: str) -> type[Analysis]:
    """The class of a registered analysis, also of a plug-in: ``visprism.analyses.Fourier``."""
    for registered in ANALYSES.values():
        if registered.__name__ == name:
            return registered  # pyrefly: ignore (a class)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *(registered.__name__ for registered in ANALYSES.values())})
