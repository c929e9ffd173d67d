"""Commands that measure: ``examine``, and one for each analysis, made from its declaration."""

import argparse
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from visprism.cli.options import study_options
from visprism.cli.values import names
from visprism.core.errors import InputError, OutputError

if TYPE_CHECKING:
    from visprism.core.options import Option
    from visprism.core.progress import StatusLine
    from visprism.core.run import Progress, Run
    from visprism.study import Study
    from visprism.study.events import Listener

EXAMINE_HELP = "several analyses of one or more models on the same images, and a report"
# What a time budget leaves for files: for the page and for the figures of each analysis of each
# model, in seconds on two cores, and the largest part of the budget.
_PAGE, _FIGURES, _FILES = 1.0, 0.2, 1 / 3


def add_examine(to: ArgumentParser) -> None:
    """The arguments of ``examine``."""
    group = to.add_argument_group("analyses")
    group.add_argument(
        "--analyses",
        type=names,
        metavar="A,B,...",
        help="names of analyses (default: all that apply)",
    )
    group.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="ANALYSIS.OPTION=VALUE",
        help="option of an analysis, such as fourier.profile=radial; repeatable "
        "(default: the defaults of each analysis)",
    )
    study_options(to, effort="quick")
    to.set_defaults(run=examine)


def add_analysis(to: ArgumentParser, name: str) -> None:
    """The arguments of the command of one analysis, from the fields of its declaration."""
    from visprism.core.options import options_of
    from visprism.core.progress import StatusLine, console_progress

    status = StatusLine()
    with console_progress(status):  # torch is imported, which takes seconds
        from visprism.analyses import ANALYSES

        options = options_of(ANALYSES[name])
        status.show(str)
    group = to.add_argument_group(f"options of {name}")
    for option in options.values():
        _add_option(group, option)
    try:
        study_options(to, effort="standard")
    except argparse.ArgumentError as error:
        raise InputError(
            f"options of {name} must not have the name of an argument of every command "
            f"({error})"
        ) from error
    to.set_defaults(run=lambda arguments: _one(arguments, name))


def examine(arguments: Namespace) -> int:
    """Run a study of several analyses; returns the exit code."""
    return _perform(arguments, arguments.analyses, _settings(arguments.set))


def _one(arguments: Namespace, name: str) -> int:
    from visprism.analyses import ANALYSES
    from visprism.core.options import options_of

    ANALYSES[name].check_settings(arguments.precision, arguments.size)
    given = vars(arguments)  # options that are not given have no value here
    names = (key for key in options_of(ANALYSES[name]) if f"option_{key}" in given)
    values = {key: given[f"option_{key}"] for key in names}
    return _perform(arguments, [name], {name: values})


def _add_option(group: Any, option: "Option") -> None:
    flag = "--" + option.name.replace("_", "-")
    shared: dict[str, Any] = {
        "dest": f"option_{option.name}",
        "default": argparse.SUPPRESS,
        "help": option.help.replace("%", "%%"),
    }
    if option.type is bool:
        group.add_argument(flag, action=argparse.BooleanOptionalAction, **shared)
        return
    group.add_argument(flag, type=_parser_of(option), metavar=option.metavar, **shared)


def _parser_of(option: "Option") -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        try:
            return option.parse(text)
        except InputError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return parse


def _settings(texts: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Options by analysis from ``analysis.option=value``."""
    settings: dict[str, dict[str, Any]] = {}
    if not texts:
        return settings  # before torch is imported
    from visprism.analyses import ANALYSES
    from visprism.core.options import options_of
    from visprism.core.registry import suggestion

    for text in texts:
        where, equals, value = text.partition("=")
        analysis, dot, key = where.partition(".")
        if not (equals and dot):
            raise InputError(f"set must be ANALYSIS.OPTION=VALUE, got {text!r}")
        declared = options_of(ANALYSES[analysis])
        name = key.replace("-", "_")
        if name not in declared:
            raise InputError(
                f"{analysis} has no option {key!r}. {suggestion(name, list(declared))}"
            )
        settings.setdefault(analysis, {})[name] = declared[name].parse(value)
    return settings


def _perform(
    arguments: Namespace,
    analyses: Iterable[str] | None,
    options: Mapping[str, Mapping[str, Any]],
) -> int:
    from visprism.core.progress import StatusLine, console_progress

    status = StatusLine(arguments.begin)
    with console_progress(status) as progress:
        study, is_first = _examined(arguments, analyses, options, status, progress)
    from visprism.cli.output import exit_code, print_outcome

    if is_first:
        print_outcome(study, arguments.out, as_json=arguments.json)
    return exit_code(study)


def _examined(
    arguments: Namespace,
    analyses: Iterable[str] | None,
    options: Mapping[str, Mapping[str, Any]],
    status: "StatusLine",
    progress: "Progress",
) -> "tuple[Study, bool]":
    """The study, and whether this process is the first, which has written its files."""
    from visprism.analyses import ANALYSES
    from visprism.core.devices import Compute
    from visprism.core.processes import processes, rank
    from visprism.core.provenance import Provenance
    from visprism.core.run import Run
    from visprism.study.console import study_listener
    from visprism.study.files import write_files

    number = len(ANALYSES.chosen(analyses, options))
    run = Run(
        compute=Compute(arguments.device, arguments.precision),
        seed=arguments.seed,
        progress=progress,
        provenance=Provenance(command=arguments.command),
        deadline=measurements_end(
            arguments.begin, arguments.minutes, models=len(arguments.models), analyses=number
        ),
    )
    with resumable(arguments.out), processes(run.compute):
        study = _study(arguments, analyses, options, run, study_listener(status))
        status.show(str)  # nothing is left to measure
        if rank() > 0:
            return study, False
        print("Drawing figures and writing the report", file=sys.stderr, flush=True)
        write_files(study, arguments.out, arguments.formats, progress=progress)
        return study, True


def _study(
    arguments: Namespace,
    analyses: Iterable[str] | None,
    options: Mapping[str, Mapping[str, Any]],
    run: "Run",
    listener: "Listener",
) -> "Study":
    from visprism.study import examine
    from visprism.study.subjects import DataOptions

    return examine(
        arguments.models,
        arguments.data,
        analyses=analyses,
        options=options,
        effort=arguments.effort,
        minutes=arguments.minutes,
        train_data=arguments.train_data,
        images=DataOptions(
            split=arguments.split,
            limit=arguments.limit,
            size=arguments.size,
            batch_size=arguments.batch_size,
            skip_bad=arguments.skip_bad,
        ),
        pretrained=arguments.pretrained,
        out=arguments.out,
        fresh=arguments.fresh,
        run=run,
        listener=listener,
    )


def measurements_end(
    begin: float, minutes: float | None, *, models: int, analyses: int
) -> float | None:
    """When measurements must end, so that a command that began then ends within its budget.

    For figures and the report it leaves 1 s and 0.2 s for each analysis of each model, at most
    a third of the budget.

    Args:
        begin: of the command, in seconds of `time.monotonic`.
        minutes: time budget of the command; None for no limit.
        models: number of models.
        analyses: number of analyses.
    """
    if minutes is None:
        return None
    budget = 60.0 * minutes
    return begin + budget - min(_PAGE + _FIGURES * models * analyses, _FILES * budget)


@contextmanager
def resumable(folder: Path) -> Iterator[None]:
    """Say what is stored in the folder of a study that is interrupted, or finds no space."""
    try:
        yield
    except KeyboardInterrupt as interruption:
        raise KeyboardInterrupt(stored_results(folder)) from interruption
    except OutputError as error:
        raise InputError(f"{error} So far, {stored_results(folder)}.") from error


def stored_results(folder: Path) -> str:
    """What an interrupted study leaves, and how to resume it."""
    from visprism.study.store import INDEX, read_index

    try:
        entries = read_index(folder / INDEX)["entries"]
    except InputError:
        entries = {}
    if not entries:
        return "no result was complete"
    results = "1 result is" if len(entries) == 1 else f"{len(entries)} results are"
    return f"{results} stored in {folder}; the same command resumes"
