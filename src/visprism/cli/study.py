"""Commands that measure: ``examine``, and one for each analysis."""

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from visprism.cli.arguments import (
    MEASURED,
    REQUIRED,
    Printing,
    add_arguments,
    argument,
    help_of,
    parser_of,
)
from visprism.cli.output import exit_code, print_study
from visprism.core.errors import InputError, OutputError
from visprism.core.interruption import on_interruption
from visprism.core.options import Effort, options_of, with_default
from visprism.core.registry import suggestion
from visprism.core.request import Computation, Extent, StudyImages, StudyOptions

if TYPE_CHECKING:
    from visprism.core.run import Run
    from visprism.study.events import Listener
    from visprism.study.study import Study

# What a time budget leaves for files: for the page and for the figures of each analysis of each
# model, in seconds on two cores, and the largest part of the budget.
_PAGE, _FIGURES, _FILES = 1.0, 0.2, 1 / 3
_LABELED = re.compile(r'(?s)(?:"(.*?)"|([^=?@:]+))=(.+)')  # ours=resnet20 or "lr=1"=resnet20
_SEPARATED = re.compile(r",(?![^(\[]*[)\]])")  # seeds of a group, commas in brackets aside


@dataclass(frozen=True, kw_only=True)
class Images(StudyImages):
    """Which images."""

    heading = "images"

    data: str = argument(REQUIRED, "images, see below", "DATA")

    def __post_init__(self) -> None:
        """`examine` checks them."""


def stated(command: object, options: type) -> dict[str, Any]:
    """The options of a study that a command has; its run has the device and the seed."""
    names = {one.name for one in fields(options)} - {one.name for one in fields(Computation)}
    return {name: getattr(command, name) for name in names - {"seed"}}


@dataclass(frozen=True, kw_only=True)
class Output(Printing):
    """Where a study goes and what is printed of it."""

    heading = "study"
    out: Path = argument(REQUIRED, "output folder", "DIR")
    verbose: bool = argument(
        False, "print the plan and every number and finding (default: at a glance)"
    )
    quiet: bool = argument(False, "print the path of the page only")
    formats: tuple[Literal["png", "svg", "pdf"], ...] = argument(
        ("svg",), "formats of figure files", "F,..."
    )

    def __post_init__(self) -> None:
        if self.json + self.verbose + self.quiet > 1:
            raise InputError("only one of --json, --verbose and --quiet must be given")

    def printed(self, study: "Study") -> int:
        """Print what the study found; the exit code."""
        from visprism.study.exports import json_of

        page = self.out / "report.html"
        if self.json:
            print(json_of(study), end="")
        elif self.quiet:
            print(page)
        else:
            print_study(study, verbose=self.verbose)
            rest = f"   All findings: {self.out / 'study.md'} or --verbose"
            print(f"Page: {page}{'' if self.verbose else rest}")
        return exit_code(study)


@dataclass(frozen=True, kw_only=True)
class StudyCommand(Output, Extent):
    """How much is measured, and where it goes."""

    def perform(self, make: "Callable[[Run, Listener], Study]") -> int:
        """Measure by `make`, write the files of the study and print it; the exit code."""
        from visprism.core.progress import StatusLine, console_progress

        status = StatusLine(self.begin)
        if not self.quiet and not sys.stderr.isatty():
            print(status(), file=sys.stderr, flush=True)
        with console_progress(status) as progress:
            # They import torch, which takes seconds.
            from visprism.core.processes import processes, rank
            from visprism.study.console import study_listener
            from visprism.study.files import write_files

            run = self.new_run(progress)
            with resumable(self.out), processes(run.compute):
                listener = study_listener(status, verbose=self.verbose, quiet=self.quiet)
                try:
                    study = make(run, listener)
                except KeyboardInterrupt:
                    self._write_stored()
                    raise
                status.show(str)  # nothing is left to measure
                is_first = rank() == 0
                if is_first:
                    write_files(study, self.out, self.formats, progress=progress)
        return self.printed(study) if is_first else exit_code(study)

    def _write_stored(self) -> None:
        """Write the page of what an interrupted study has stored; a second Ctrl-C ends it."""
        from visprism.study.study import Study

        with suppress(InputError):  # nothing is stored yet
            study = Study.load(self.out)
            if study.entries:
                study.write_files(self.out, self.formats)
                print(f"Page so far: {self.out / 'report.html'}", file=sys.stderr)

    def deadline(self, begin: float, models: int, analyses: int) -> float | None:
        """When measurements must end, so that files are written within the budget."""
        if self.minutes is None:
            return None
        budget = 60.0 * self.minutes
        return begin + budget - min(_PAGE + _FIGURES * models * analyses, _FILES * budget)


@dataclass(frozen=True, kw_only=True)
class Models:
    """Which models, each by its own name or by a label."""

    models: tuple[str, ...] = argument(
        REQUIRED,
        "models, see below, or LABEL=MODEL; LABEL=MODEL,MODEL,... are seeds of one group",
        "MODEL",
        positional=True,
    )
    labels: tuple[str, ...] = argument(
        (), "names of the models, in their order (default: as the models are named)", "A,B,..."
    )

    def labeled(self) -> Mapping[str, str | list[str]] | list[str]:
        """The models, by their labels if they have any; a label of several is a group."""
        matches = [_LABELED.fullmatch(text) for text in self.models]
        if not self.labels and not any(matches):
            return list(self.models)
        named: dict[str, str | list[str]] = {}
        for place, (text, match) in enumerate(zip(self.models, matches, strict=True)):
            quoted, plain, model = match.groups() if match else (text, "", text)
            label = plain if quoted is None else quoted
            members = _SEPARATED.split(model)
            label = self.labels[place] if place < len(self.labels) else label
            named[label] = members if len(members) > 1 else model
        if len(named) < len(self.models) or len(self.labels) not in {0, len(self.models)}:
            raise InputError(
                f"each of the {len(self.models)} models must have a separate label, got "
                f"{', '.join(self.labels or named)}"
            )
        return named


@dataclass(frozen=True, kw_only=True)
class _Measuring(StudyCommand, Images, StudyOptions, Models):
    """A command that measures models on images."""

    def examined(
        self,
        analyses: Iterable[str] | None,
        options: Mapping[str, Mapping[str, Any]],
        run: "Run",
        listener: "Listener",
    ) -> "Study":
        """The study of these analyses."""
        from visprism.kit.analysis import ANALYSES
        from visprism.study.examine import examine

        number = len(ANALYSES.chosen(analyses, options))
        return examine(
            self.labeled(),
            self.data,
            analyses=analyses,
            options=options,
            **stated(self, StudyOptions),
            out=self.out,
            run=replace(run, deadline=self.deadline(self.begin, len(self.models), number)),
            listener=listener,
        )


@dataclass(frozen=True, kw_only=True)
class Examine(_Measuring):
    """Several analyses of one or more models on the same images, and a report."""

    group, epilog, heading = "studies", MEASURED, "analyses"
    analyses: tuple[str, ...] | None = argument(
        None, "names of analyses (default: a selection)", "A,B,..."
    )
    set: tuple[str, ...] = argument(
        (),
        "option of an analysis, such as fourier.profile=radial; repeatable (default: the "
        "defaults of each analysis)",
        "ANALYSIS.OPTION=VALUE",
        repeatable=True,
    )

    def run(self) -> int:
        """Run a study of several analyses; returns the exit code."""
        options = _options(self.set) if self.set else {}
        return self.perform(
            lambda run, listener: self.examined(self.analyses, options, run, listener)
        )


def _options(texts: Iterable[str]) -> dict[str, dict[str, Any]]:
    from visprism.kit.analysis import ANALYSES

    settings: dict[str, dict[str, Any]] = {}
    for text in texts:
        where, equals, value = text.partition("=")
        analysis, dot, key = where.partition(".")
        if not (equals and dot):
            raise InputError(f"set must be ANALYSIS.OPTION=VALUE, got {text!r}")
        declared = options_of(ANALYSES[analysis])
        name = key.replace("-", "_")
        if name not in declared:
            remedy = suggestion(name, list(declared))
            raise InputError(f"{analysis} has no option {key!r}. {remedy}")
        settings.setdefault(analysis, {})[name] = declared[name].parse(value)
    return settings


@dataclass(frozen=True, kw_only=True)
class OneAnalysis(_Measuring):
    """The command of one analysis."""

    analysis: str
    options: Mapping[str, Any] = field(default_factory=dict)
    # One analysis takes a part of the time of a study, and has its own defaults.
    effort: Effort = with_default(Extent, "effort", "standard")

    def run(self) -> int:
        """Run a study of this analysis; returns the exit code."""
        from visprism.kit.analysis import ANALYSES

        name = self.analysis
        ANALYSES[name].check_precision(self.precision)
        return self.perform(
            lambda run, listener: self.examined([name], {name: self.options}, run, listener)
        )


def add_analysis(to: argparse.ArgumentParser, name: str) -> None:
    """The arguments of the command of one analysis, from the fields of its declaration."""
    from visprism.core.progress import StatusLine, console_progress

    status = StatusLine()
    with console_progress(status):  # torch is imported, which takes seconds
        from visprism.kit.analysis import ANALYSES

        options = options_of(ANALYSES[name])
        status.show(str)
    group = to.add_argument_group(f"options of {name}")
    for option in options.values():
        shared: dict[str, Any] = {
            "dest": option.name,
            "default": argparse.SUPPRESS,  # then the effort decides
            "help": help_of(option),
        }
        if option.type is bool:
            shared["action"] = argparse.BooleanOptionalAction
        else:
            shared |= {"type": parser_of(option), "metavar": option.metavar}
        group.add_argument(f"--{option.name.replace('_', '-')}", **shared)
    add_arguments(to, OneAnalysis)


def of_analysis(name: str, **values: Any) -> OneAnalysis:
    """The command of one analysis from the values of its arguments."""
    from visprism.kit.analysis import ANALYSES

    options = {k: values.pop(k) for k in options_of(ANALYSES[name]) if k in values}
    return OneAnalysis(analysis=name, options=options, **values)


@contextmanager
def resumable(folder: Path) -> Iterator[None]:
    """Say what is stored in the folder of a study that is interrupted, or finds no space."""
    try:
        with on_interruption(lambda: _stored_results(folder)):
            yield
    except OutputError as error:
        raise InputError(f"{error} So far, {_stored_results(folder)}.") from error


def _stored_results(folder: Path) -> str:
    from visprism.study.store import INDEX, read_index

    entries = []
    for index in folder.rglob(INDEX):  # of a training there is one for each step
        with suppress(InputError):
            entries += read_index(index)["entries"]
    if not entries:
        return "no result was complete"
    results = "1 result is" if len(entries) == 1 else f"{len(entries)} results are"
    return f"{results} stored in {folder}, see visprism view {folder}; the same command resumes"
