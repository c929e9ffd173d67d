"""The request of a study: what `examine` and `evolve` are called with, as one value."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from inspect import cleandoc, signature
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeVar

from visprism.core.devices import Compute
from visprism.core.errors import InputError
from visprism.core.options import options_of
from visprism.core.request import (
    AUTO,
    Computation,
    DataOptions,
    Extent,
    Seeded,
    StudyImages,
    StudyOptions,
)
from visprism.core.run import Run
from visprism.kit.analysis import Analysis
from visprism.study.events import Listener

P = ParamSpec("P")
Q = TypeVar("Q")
R = TypeVar("R")

Analyses = Iterable[str | Analysis | type[Analysis]] | Analysis | str


@dataclass(frozen=True, kw_only=True, eq=False)
class Measurement(Computation, Extent, StudyImages, Seeded):
    """Options of any study, and those that only Python can state."""

    analyses: Analyses | None = None
    options: Mapping[str, Mapping[str, Any]] | None = None
    preprocessing: Any = None
    out: Path | str | None = None
    run: Run | None = None

    def how(self) -> Run:
        """How it is measured: as `run` says if it is given, on the device that is named."""
        device = None if self.device == AUTO else self.device
        if self.run is None:
            return Run(Compute(device, self.precision), seed=self.seed)
        for name in ("seed", "precision"):
            if (given := getattr(self, name)) != options_of(type(self))[name].default:
                raise InputError(
                    f"{name} must be given once, got {given!r} and a run, which has its own"
                )
        return self.run.at(device)

    @property
    def images(self) -> DataOptions:
        """How images are chosen."""
        return DataOptions.of(self)


@dataclass(frozen=True, kw_only=True, eq=False)
class StudyRequest(Measurement, StudyOptions):
    """What `examine` measures, on which images, and how."""

    models: Any = field(kw_only=False)
    data: Any = field(kw_only=False)
    on_error: Literal["record", "raise"] = "record"
    listener: Listener | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.on_error not in ("record", "raise"):
            raise InputError(f"on_error must be 'record' or 'raise', got {self.on_error!r}")


def arguments_of(request: Callable[P, Q]) -> Callable[[Callable[[Q], R]], Callable[P, R]]:
    """Let a function of a request take its fields as arguments, which `help` shows."""

    def decorate(function: Callable[[Q], R]) -> Callable[P, R]:
        taken = signature(request)

        @wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                taken.bind(*args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{function.__name__}() {error}") from None
            return function(request(*args, **kwargs))

        lines = [
            f"    {name}: {declared.info.help}."
            for name, declared in options_of(request).items()  # pyrefly: ignore (a class)
        ]
        returned = signature(function, eval_str=True).return_annotation
        called.__signature__ = taken.replace(return_annotation=returned)  # pyrefly: ignore
        called.__doc__ = "\n".join([cleandoc(function.__doc__ or ""), *lines])
        return called

    return decorate
