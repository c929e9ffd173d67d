"""The parser of the command line; only the command that is asked for has its arguments added.

Adding the arguments of an analysis imports it, and torch with it; ``visprism --help`` needs
only names and first lines, which are read from the source text of analyses if there are no
plug-ins.
"""

import argparse
import ast
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import entry_points, version
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from visprism.cli import catalog, harmonize, look, studies, study, system, train
from visprism.cli.arguments import MEASURED, REQUIRED, Command, add_arguments, argument
from visprism.cli.output import Parser, flags_of
from visprism.cli.study_file import first_file, words_of
from visprism.core.errors import InputError
from visprism.core.registry import suggestion


@dataclass(frozen=True, kw_only=True)
class Completion(Command):
    """Print the completion script of a shell: bash, zsh or fish."""

    group, epilog = "installation", ""
    shell: Literal["bash", "zsh", "fish"] = argument(
        REQUIRED, "bash, zsh or fish", "SHELL", positional=True
    )

    def run(self) -> None:
        """Print a script that completes commands, flags, values and names of files."""
        import shtab

        parser = whole_parser()
        system.add_names(parser)
        print(shtab.complete(parser, self.shell))


_PACKAGE = "visprism.analyses"
_WORDS = "Words without a flag come first, and a list is one word with commas."
_DEFAULT_GROUP = "feature maps"  # as in `Analysis`
_BEFORE: dict[str, Any] = {
    "examine": study.Examine,
    "merge": studies.Merge,
    "report": studies.Report,
    "demo": studies.Demo,
    "look": look.Look,
    "view": system.View,
    "evolve": studies.Evolve,
}
_AFTER: dict[str, Any] = {
    "anatomy": catalog.Anatomy,
    "models": catalog.Models,
    "data": catalog.Data,
    "train": train.Train,
    "recipes": train.Recipes,
    "harmonize": harmonize.Harmonize,
    "doctor": system.Doctor,
    "completion": Completion,
}


@dataclass(frozen=True)
class Entry:
    """One command: its line in the help, and how its arguments are added and read."""

    help: str  # the first line of its docstring, without a full stop
    group: str  # of the help
    epilog: str
    add: Callable[[argparse.ArgumentParser], None]
    make: Callable[..., Command]
    hint: Callable[[str], str | None] = lambda _: None  # for a flag that it does not have


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
    hint = getattr(command, "hint", lambda _: None)
    return Entry(line.rstrip("."), command.group, command.epilog, add, command, hint)


def _analysis(name: str, summary: "Summary") -> Entry:
    add, make = partial(study.add_analysis, name=name), partial(study.of_analysis, name)
    return Entry(summary.text.rstrip("."), summary.group, MEASURED, add, make)


def parse(words: Sequence[str]) -> tuple[Command, list[str]]:
    """The command of a command line, and the flags that it has."""
    named = next((word for word in words if not word.startswith("-")), None)
    available = commands()
    if named is not None and named not in available:
        raise InputError(f"unknown command {named!r}. {suggestion(named, list(available))}")
    root, made = _root(available)
    if named is None:
        root.parse_args(words)  # --help or --version, which end the process
        raise InputError("a command must be named. `visprism --help` lists them.")
    available[named].add(made[named])
    flags = flags_of(made[named])
    _check_once(words, made[named])
    file = first_file(words)
    if file is not None:
        words = ["examine", *_stated(file, words[2:], made[named]), *words[2:]]
    try:
        parsed, extra = root.parse_known_args(words)
        if extra:
            flag = extra[0].partition("=")[0]
            known = available[named].hint(flag) if flag.startswith("-") else _WORDS
            hint = known or suggestion(flag, flags)
            raise InputError(f"unknown argument {flag!r}. {hint}")
    except InputError as error:
        raise InputError(f"{file}: {error}" if file is not None else str(error)) from error
    values = {k: tuple(v) if isinstance(v, list) else v for k, v in vars(parsed).items()}
    return available[named].make(**values), flags


def _stated(file: Path, words: Sequence[str], parser: argparse.ArgumentParser) -> list[str]:
    """The words of a study file, without flags whose opposite the words have."""
    given = {word.partition("=")[0] for word in words}
    opposites = set[str]()
    for group in parser._mutually_exclusive_groups:
        flags = {flag for action in group._group_actions for flag in action.option_strings}
        opposites |= flags if flags & given else set()
    stated = words_of(file, flags_of(parser))
    return [word for word in stated if word.partition("=")[0] not in opposites]


def _check_once(words: Sequence[str], parser: argparse.ArgumentParser) -> None:
    """Refuse a flag that is given twice, unless it takes several values that way."""
    appended = (a for a in parser._actions if "Append" in type(a).__name__)
    several = {flag for action in appended for flag in action.option_strings}
    counts = Counter(word.partition("=")[0] for word in words if word.startswith("--"))
    twice = next((flag for flag, n in counts.items() if n > 1 and flag not in several), None)
    if twice is not None:
        raise InputError(f"{twice} must be given once, got it {counts[twice]} times")
    after = (w for before, w in pairwise(["", *words]) if before == "--set")
    fields = Counter(word.partition("=")[0] for word in after)
    if repeated := [name for name, n in fields.items() if n > 1]:
        raise InputError(f"set must give each field once, got {repeated[0]} twice")


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


# What analyses declare, as text: importing them needs torch, which takes seconds.


@dataclass(frozen=True)
class Summary:
    """What the help shows of an analysis."""

    text: str  # first line of its docstring
    group: str


def summaries() -> dict[str, Summary]:
    """The summary of each analysis by its name; plug-ins are imported for theirs."""
    if not entry_points(group="visprism.plugins"):
        return {name: summary for path in _sources() for name, summary in _declared(path)}
    from visprism.kit.analysis import ANALYSES

    return {
        name: Summary((analysis.__doc__ or "").strip().partition("\n")[0], analysis.group)
        for name, analysis in ((name, ANALYSES[name]) for name in ANALYSES)
        if not analysis.measured_by
    }


@cache
def groups() -> tuple[str, ...]:
    """The groups of analyses in the order of the help."""
    base = Path(__file__).parents[1] / "kit" / "analysis.py"
    return next(v for v in _literals(ast.parse(base.read_text("utf-8"))) if v[0] == "GROUPS")[1]


@cache
def _sources() -> list[Path]:
    spec = find_spec(_PACKAGE)
    places = spec.submodule_search_locations if spec is not None else None
    return sorted(path for place in places or () for path in Path(place).rglob("*.py"))


_DECORATORS = {"kit.analysis", "ANALYSES.register"}


@cache
def _declared(path: Path) -> list[tuple[str, Summary]]:
    """Name and summary of each analysis of a file."""
    text = path.read_text("utf-8")
    declared = []
    for node in ast.parse(text).body if any(name in text for name in _DECORATORS) else ():
        if isinstance(node, ast.ClassDef) and _DECORATORS & {
            ast.unparse(decorator) for decorator in node.decorator_list
        }:
            values = dict(_literals(node))
            if "measured_by" not in values:
                line = (ast.get_docstring(node) or "").partition("\n")[0]
                group = values.get("group", _DEFAULT_GROUP)
                declared.append((values["name"], Summary(line, group)))
    return declared


def _literals(node: ast.ClassDef | ast.Module) -> Iterator[tuple[str, Any]]:
    """Names and values of literals that a class or module assigns."""
    for statement in node.body:
        if isinstance(statement, ast.Assign):
            with suppress(ValueError):  # no literal
                yield ast.unparse(statement.targets[0]), ast.literal_eval(statement.value)
