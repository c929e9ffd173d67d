"""The parser of the command line; only the command that is asked for has its arguments added.

Adding the arguments of an analysis imports it, and torch with it; ``visprism --help`` needs
only names and first lines, which are read from the source text of analyses.
"""

import argparse
import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import EntryPoint, entry_points, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from visprism.cli import catalog, claims, harmonize, study, system, train
from visprism.cli.arguments import MEASURED, Command, add_arguments
from visprism.cli.output import Parser, flags_of
from visprism.cli.study_file import first_file, with_file
from visprism.core.errors import InputError
from visprism.core.registry import suggestion

_PACKAGE = "visprism.analyses"
_WORDS = "Words without a flag come first, and a list is one word with commas."
_DEFAULT_GROUP = "feature maps"  # as in `Analysis`
_BEFORE: dict[str, Any] = {
    "examine": study.Examine,
    "merge": study.Merge,
    "demo": study.Demo,
    "view": system.View,
    "evolve": study.Evolve,
    "claims": claims.Claims,
}
_AFTER: dict[str, Any] = {
    "anatomy": catalog.Anatomy,
    "models": catalog.Models,
    "data": catalog.Data,
    "train": train.Train,
    "recipes": train.Recipes,
    "harmonize": harmonize.Harmonize,
    "doctor": system.Doctor,
    "completion": system.Completion,
}


@dataclass(frozen=True)
class Entry:
    """One command: its line in the help, and how its arguments are added and read."""

    help: str  # the first line of its docstring, without a full stop
    group: str  # of the help
    epilog: str
    add: Callable[[argparse.ArgumentParser], None]
    make: Callable[..., Command]


def commands() -> dict[str, Entry]:
    """Every command by name, in the order of the help."""
    order = groups()
    analyses = sorted(
        summaries().items(), key=lambda item: (order.index(item[1].group), item[0])
    )
    return {
        **{name: _entry(command) for name, command in _BEFORE.items()},
        **{name: _analysis(name, summary) for name, summary in analyses},
        **{name: _entry(command) for name, command in _AFTER.items()},
    }


def _entry(command: Any) -> Entry:
    line = command.__doc__.partition("\n")[0]
    add = partial(add_arguments, command=command)
    return Entry(line.rstrip("."), command.group, command.epilog, add, command)


def _analysis(name: str, summary: "Summary") -> Entry:
    add, make = partial(study.add_analysis, name=name), partial(study.of_analysis, name)
    return Entry(summary.text.rstrip("."), summary.group, MEASURED, add, make)


def parse(words: Sequence[str]) -> tuple[Command, list[str]]:
    """The command of a command line, and the flags that it has."""
    named = next((word for word in words if not word.startswith("-")), None)
    available = commands()
    if named is not None and named not in available:
        available |= _registered(available)
        if named not in available:
            raise InputError(f"unknown command {named!r}. {suggestion(named, list(available))}")
    root, made = _root(available)
    if named is None:
        root.parse_args(words)  # --help or --version, which end the process
        raise InputError("a command must be named. `visprism --help` lists them.")
    available[named].add(made[named])
    file = first_file(words)
    for action in made[named]._actions if file is not None else ():
        action.required = not action.option_strings  # the file may state the others
    parsed, extra = root.parse_known_args(words)
    flags = flags_of(made[named])
    if extra:
        flag = extra[0].partition("=")[0]
        hint = suggestion(flag, flags) if flag.startswith("-") else _WORDS
        raise InputError(f"unknown argument {flag!r}. {hint}")
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in vars(parsed).items()}
    if file is not None:
        values = with_file(file, made[named], values)
    return available[named].make(**values), flags


def command_parser(name: str) -> argparse.ArgumentParser:
    """The parser of one command with all its arguments."""
    available = commands()
    _, made = _root(available)
    available[name].add(made[name])
    return made[name]


def whole_parser() -> argparse.ArgumentParser:
    """The parser with the arguments of every command."""
    available = commands()
    root, made = _root(available)
    for name, entry in available.items():
        entry.add(made[name])
    for action in root._actions:
        if action.help == argparse.SUPPRESS:
            action.help = "command"
    return root


def help_text() -> str:
    """The help of ``visprism`` itself."""
    return _root(commands())[0].format_help()


def _root(available: dict[str, Entry]) -> tuple[Parser, dict[str, Parser]]:
    style: dict[str, Any] = {
        "formatter_class": argparse.RawDescriptionHelpFormatter,
        "allow_abbrev": False,
    }
    root = Parser(
        prog="visprism",
        usage="visprism COMMAND ...",
        description="Show how a vision model works: split it into blocks, measure what each "
        "block does, and write a report.",
        epilog=f"{_listing(available)}\n\n`visprism COMMAND --help` explains a command.",
        **style,
    )
    root.add_argument("--version", action="version", version=f"visprism {version('visprism')}")
    parsers = root.add_subparsers(required=True, metavar="COMMAND", help=argparse.SUPPRESS)
    made = {
        name: parsers.add_parser(
            name,
            help=entry.help,
            prog=f"visprism {name}",
            description=f"{entry.help}.",
            epilog=entry.epilog,
            **style,
        )
        for name, entry in available.items()
    }
    return root, made


def _listing(available: dict[str, Entry]) -> str:
    width = max(map(len, available))
    lines: list[str] = []
    for group in dict.fromkeys(entry.group for entry in available.values()):
        of_group = [(name, entry) for name, entry in available.items() if entry.group == group]
        lines += ["", f"{group}:", *(f"  {name:<{width}}  {e.help}" for name, e in of_group)]
    return "\n".join(lines[1:])


def _registered(existing: dict[str, Entry]) -> dict[str, Entry]:
    """Commands of analyses that plug-ins register in ways that their text does not show."""
    from visprism.analyses.base import ANALYSES

    return {
        name: _analysis(
            name, Summary((analysis.__doc__ or "").partition("\n")[0], analysis.group)
        )
        for name, analysis in ((n, ANALYSES[n]) for n in ANALYSES if n not in existing)
        if not analysis.measured_by
    }


# What analyses declare, as text: importing them needs torch, which takes seconds.


@dataclass(frozen=True)
class Summary:
    """What the help shows of an analysis."""

    text: str  # first line of its docstring
    group: str


def summaries() -> dict[str, Summary]:
    """The summary of each analysis by its name, of built-in ones and of plug-ins."""
    plugins = entry_points(group="visprism.plugins")
    of_plugins = (path for plugin in plugins for path in _plugin_sources(plugin))
    return {
        name: summary
        for path in (*_folder(_PACKAGE), *of_plugins)
        for name, summary in _declared(path, path.stat().st_mtime_ns)
    }


@cache
def groups() -> tuple[str, ...]:
    """The groups of analyses in the order of the help."""
    for path in _folder(_PACKAGE):
        if path.stem == "base":
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "GROUPS":
                    return ast.literal_eval(node.value)
    raise AssertionError(f"{_PACKAGE}.base declares no GROUPS")


def _folder(package: str) -> list[Path]:
    spec = find_spec(package)
    places = spec.submodule_search_locations if spec is not None else None
    return sorted(path for place in places or () for path in Path(place).rglob("*.py"))


def _plugin_sources(plugin: EntryPoint) -> list[Path]:
    """The module that a plug-in names, or the modules of the package; nothing is imported."""
    try:
        top, *rest = plugin.module.split(".")
        spec = find_spec(top)
    except (AttributeError, ValueError):  # an entry point that names no module
        return []  # reported when the plug-in is loaded
    if spec is None:
        return []
    if not spec.submodule_search_locations:
        return [Path(spec.origin)] if spec.origin else []
    paths = [Path(place).joinpath(*rest) for place in spec.submodule_search_locations]
    files = [f for path in paths for f in (*sorted(path.glob("*.py")), path.with_suffix(".py"))]
    return [file for file in files if file.is_file()]


@cache
def _declared(path: Path, modified: int) -> tuple[tuple[str, Summary], ...]:
    """Name and summary of each analysis of a file, as it was when last `modified`."""
    text = path.read_text(encoding="utf-8", errors="replace")
    if "ANALYSES.register" not in text:
        return ()
    try:
        nodes = ast.parse(text).body
    except (SyntaxError, ValueError):
        return ()  # reported when the plug-in is loaded
    declared = []
    for node in nodes:
        if isinstance(node, ast.ClassDef) and any(
            ast.unparse(d).endswith("ANALYSES.register") for d in node.decorator_list
        ):
            values = _class_attributes(node)
            line = (ast.get_docstring(node) or "").partition("\n")[0]
            if "name" in values and "measured_by" not in values:
                group = values.get("group", _DEFAULT_GROUP)
                declared.append((values["name"], Summary(line, group)))
    return tuple(declared)


def _class_attributes(node: ast.ClassDef) -> dict[str, str]:
    """Class attributes that are literal texts, with or without a type annotation."""
    values = {}
    for statement in node.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            target = (
                statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
            )
            value = statement.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                values[ast.unparse(target)] = value.value
    return values
