"""Commands that measure: ``examine``, and one for each analysis, made from its declaration."""

import argparse
import ast
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from visprism.cli.naming import BOTH
from visprism.cli.options import (
    compute_options,
    data_options,
    models_options,
    out_options,
)
from visprism.cli.values import minutes, names
from visprism.core.errors import InputError

if TYPE_CHECKING:
    from visprism.analyses import Analysis
    from visprism.core.options import Option
    from visprism.study import Study
    from visprism.study.events import Event

_FORMATS = ("png", "svg", "pdf")


def summaries() -> dict[str, str]:
    """The first line of each built-in analysis by its name, without importing it.

    Reading the declarations as text keeps ``visprism --help`` fast; importing them needs torch.
    """
    spec = find_spec("visprism.analyses")
    assert spec is not None  # it is a part of this package
    found: dict[str, str] = {}
    for folder in spec.submodule_search_locations or ():
        for path in sorted(Path(folder).glob("*.py")):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                name = _registered_name(node)
                if name is not None and isinstance(node, ast.ClassDef):
                    found[name] = (ast.get_docstring(node) or "").partition("\n")[0]
    return found


def _registered_name(node: ast.stmt) -> str | None:
    """The name of the analysis that a statement declares; None for any other statement."""
    if not isinstance(node, ast.ClassDef):
        return None
    decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
    if not any(decorator.startswith("ANALYSES.register") for decorator in decorators):
        return None
    for statement in node.body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "name":
            return ast.literal_eval(statement.value)
    return None


def add_examine(to: ArgumentParser) -> None:
    """The arguments of ``examine``."""
    _add_study_options(to, default_minutes="2")
    to.add_argument(
        "--analyses",
        type=names,
        metavar="A,B,...",
        help="names of analyses (default: all that apply)",
    )
    to.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="ANALYSIS.OPTION=VALUE",
        help="an option of an analysis, such as fourier.profile=radial; repeatable",
    )
    to.set_defaults(run=examine)


def add_analysis(to: ArgumentParser, name: str) -> None:
    """The arguments of the command of one analysis, from the fields of its declaration."""
    from visprism.analyses import ANALYSES
    from visprism.core.options import options_of

    analysis = ANALYSES[name]
    group = to.add_argument_group(f"options of {name}")
    for option in options_of(analysis).values():
        _add_option(group, option)
    _add_study_options(to, default_minutes="no limit")
    to.set_defaults(run=lambda arguments: _one(arguments, name))


def examine(arguments: Namespace) -> int:
    """Run a study of several analyses; returns the exit code."""
    return _perform(
        arguments,
        arguments.analyses,
        _settings(arguments.set),
        2.0 if arguments.minutes is None else arguments.minutes,
    )


def _one(arguments: Namespace, name: str) -> int:
    from visprism.analyses import ANALYSES
    from visprism.core.options import options_of

    values = {key: getattr(arguments, f"option_{key}") for key in options_of(ANALYSES[name])}
    return _perform(arguments, [name], {name: values}, arguments.minutes)


def _add_study_options(to: ArgumentParser, *, default_minutes: str) -> None:
    models_options(to)
    data_options(to)
    out_options(to)
    to.add_argument(
        "--minutes",
        type=minutes,
        metavar="N",
        help=f"time budget of the whole study in minutes (default: {default_minutes})",
    )
    to.add_argument(
        "--fresh", action="store_true", help="start over instead of resuming what DIR holds"
    )
    to.add_argument(
        "--formats",
        type=names,
        default=("png",),
        metavar="F,...",
        help=f"formats of figure files: {', '.join(_FORMATS)} (default: png)",
    )
    compute_options(to)


def _add_option(group: Any, option: "Option") -> None:  # noqa: ANN401 (argparse hides its type)
    flag = "--" + option.name.replace("_", "-")
    shared: dict[str, Any] = {
        "dest": f"option_{option.name}",
        "default": option.default,
        "help": option.help.replace("%", "%%"),
    }
    if option.type is bool:
        group.add_argument(flag, action=argparse.BooleanOptionalAction, **shared)
        return
    single = option.choices is not None and not isinstance(option.default, tuple)
    if single:
        shared["metavar"] = "{" + ",".join(map(str, option.choices or ())) + "}"
    else:
        shared["metavar"] = option.name.upper()
    group.add_argument(flag, type=_parser_of(option), **shared)


def _parser_of(option: "Option") -> Any:  # noqa: ANN401 (a function from text)
    def parse(text: str) -> Any:  # noqa: ANN401
        try:
            return option.parse(text)
        except InputError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return parse


def _settings(texts: list[str]) -> dict[str, dict[str, Any]]:
    """Options by analysis from ``analysis.option=value``.

    Raises:
        InputError: if a text has another form, or names no option.
    """
    from visprism.analyses import ANALYSES
    from visprism.core.options import options_of
    from visprism.core.registry import suggestion

    settings: dict[str, dict[str, Any]] = {}
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
    analyses: "list[str | Analysis] | tuple[str, ...] | None",
    options: Mapping[str, Mapping[str, Any]],
    limit: float | None,
) -> int:
    from visprism.cli.progress import progress_shown
    from visprism.core.devices import Compute
    from visprism.core.processes import processes, rank
    from visprism.core.provenance import Provenance
    from visprism.core.run import Run
    from visprism.study import examine
    from visprism.study.files import write_files
    from visprism.study.subjects import DataOptions

    unknown = [f for f in arguments.formats if f not in _FORMATS]
    if unknown:
        raise InputError(f"formats must be of {', '.join(_FORMATS)}, got {unknown[0]!r}")
    compute = Compute(arguments.device, arguments.precision)
    with processes(compute), progress_shown() as progress:
        study = examine(
            arguments.models,
            arguments.data,
            analyses=analyses,
            options=options,
            minutes=limit,
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
            run=Run(
                compute=compute,
                seed=arguments.seed,
                progress=progress,
                provenance=Provenance(command=arguments.command),
            ),
            listener=print_event,
        )
        if rank() > 0:
            return 0
        write_files(study, arguments.out, formats=arguments.formats)
    print_study(study)
    print(f"Wrote {arguments.out / 'report.html'}")
    return int(any(failure.kind == "failed" for failure in study.failures))


def print_event(event: "Event") -> None:
    """The plan before anything is measured, and failures as they happen, on stderr."""
    from visprism.core.processes import rank
    from visprism.study.events import Planned, Stopped

    if rank() > 0:
        return
    if isinstance(event, Planned):
        for line in (*event.preparation, "Plan:", *(f"  {s}" for s in event.plan.lines())):
            print(line, file=sys.stderr)
    elif isinstance(event, Stopped):
        f = event.failure
        print(f"{f.kind}: {f.analysis} of {f.model}: {f.reason}", file=sys.stderr)


def print_study(study: "Study") -> None:
    """The table, the findings of each model, and what was not measured."""
    for line in study.lines():
        print(line)
    for name in study.models:
        findings = study.model(name).findings()
        if findings:
            print(f"\n{name}")
        for finding in findings:
            print(f"  {finding}")
    failed = [f for f in study.failures if f.kind == "failed"]
    if failed:
        print("\nFailed")
        for failure in failed:
            print(f"  {failure.analysis} of {failure.model}: {failure.reason}")


EXAMINE_HELP = "several analyses of one or more models on the same images, and a report"
EPILOG = BOTH
