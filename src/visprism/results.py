"""Results by name: ``visprism.results.Spectrum`` is every declared type, also of a plug-in."""

from visprism.table.result import Result, result_types


def __getattr__(name: str) -> type[Result]:
    for declared in result_types().values():
        if declared.__name__ == name:
            return declared
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *(declared.__name__ for declared in result_types().values())})
