"""The parser of the command line; only the command that is asked for has its arguments added.

Adding the arguments of an analysis imports it, and torch with it; ``visprism --help`` needs
names and first lines alone.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version

from visprism.cli import (
    anatomy,
    catalog,
    claims,
    completion,
    demo,
    doctor,
    harmonize,
    study_commands,
    train,
    view,
)
from visprism.cli.declarations import groups, summaries
from visprism.cli.errors import Parser, flags_of
from visprism.cli.options import BOTH, DATA, MODEL, WEIGHTS
from visprism.cli.study_file import Models, first_file, in_file, study_arguments
from visprism.core.errors import InputError
from visprism.core.registry import suggestion

MEASURED = f"{MODEL}\n{WEIGHTS}\n{DATA}"


@dataclass(frozen=True)
class Command:
    """One command: its line in the help, and a function that adds its arguments."""

    help: str  # a phrase without a full stop
    add: Callable[[argparse.ArgumentParser], None]
    group: str = ""  # of the help
    epilog: str = ""


def commands() -> dict[str, Command]:
    """Every command by name, in the order of the help."""
    order = groups()
    analyses = {
        name: Command(_phrase(s.text), _adder(name), s.group, MEASURED)
        for name, s in sorted(
            summaries().items(), key=lambda item: (order.index(item[1].group), item[0])
        )
    }
    first = {
        "examine": Command(
            study_commands.EXAMINE_HELP, study_commands.add_examine, "studies", MEASURED
        ),
        "demo": Command("examine two small trained networks", demo.add, "studies"),
        "view": Command("show and start studies in a browser", view.add, "studies", DATA),
        "claims": Command(
            "test the claims of Park & Kim (2022) on networks trained from several seeds",
            claims.add,
            "studies",
            DATA,
        ),
    }
    return {
        **first,
        **analyses,
        "anatomy": Command(
            "blocks of a model: kind, stage, output, cost",
            anatomy.add,
            "models and data",
            MODEL,
        ),
        "models": Command(
            "list available models; with --cost, measure parameters, MACs and throughput",
            catalog.add_models,
            "models and data",
            f"{MODEL}\n{WEIGHTS}",
        ),
        "data": Command("list available data sets", catalog.add_data, "models and data", DATA),
        "train": Command("train a model by a recipe", train.add_train, "training", BOTH),
        "recipes": Command(
            "list training recipes, or print one as YAML", train.add_recipes, "training"
        ),
        "harmonize": Command(
            "replace convolutions of a CNN by self-attention", harmonize.add, "training", BOTH
        ),
        "doctor": Command(
            "print versions, devices and folders for a bug report", doctor.add, "installation"
        ),
        "completion": Command(
            "print the completion script of a shell: bash, zsh or fish",
            completion.add,
            "installation",
        ),
    }


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The arguments of a command line; `flags` are those of its command."""
    named = next((word for word in words if not word.startswith("-")), None)
    available = commands()
    if named is not None and named not in available:
        available |= _registered_commands(available)
        if named not in available:
            raise InputError(f"unknown command {named!r}. {suggestion(named, list(available))}")
    root, made = _root(available)
    if named is not None:
        available[named].add(made[named])
    study_file = first_file(words)
    stated: list[str] = []
    models: Models = []
    if study_file is not None:
        stated, models = study_arguments(study_file, made["examine"])
        words = [words[0], *stated, str(study_file), *words[2:]]
    try:
        arguments, extra = root.parse_known_args(words)
    except InputError as error:
        if study_file is None:
            raise
        raise in_file(error, study_file, words[len(stated) + 2 :]) from error
    if study_file is not None:
        if len(arguments.models) > 1:
            raise InputError(
                f"a study file must be the only model, got also {arguments.models[1]}"
            )
        arguments.models = models
    flags = flags_of(made[named]) if named is not None else []
    if extra:
        flag = extra[0].partition("=")[0]
        raise InputError(f"unknown argument {flag!r}. {suggestion(flag, flags)}")
    arguments.flags = flags
    return arguments


def command_parser(name: str) -> argparse.ArgumentParser:
    """The parser of one command with all its arguments."""
    available = commands()
    _, made = _root(available)
    available[name].add(made[name])
    return made[name]


def help_text() -> str:
    """The help of ``visprism`` itself."""
    root, _ = _root(commands())
    return root.format_help()


def _root(available: dict[str, Command]) -> tuple[Parser, dict[str, Parser]]:
    root = Parser(
        prog="visprism",
        usage="visprism COMMAND ...",
        description="Show how a vision model works: split it into blocks, measure what each "
        "block does, and write a report.",
        epilog=f"{_listing(available)}\n\n`visprism COMMAND --help` explains a command.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    root.add_argument("--version", action="version", version=f"visprism {version('visprism')}")
    parsers = root.add_subparsers(required=True, metavar="COMMAND", help=argparse.SUPPRESS)
    made = {
        name: parsers.add_parser(
            name,
            prog=f"visprism {name}",
            description=command.help[0].upper() + command.help[1:] + ".",
            epilog=command.epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        for name, command in available.items()
    }
    return root, made


def _listing(available: dict[str, Command]) -> str:
    """The commands by group, a line each."""
    width = max(map(len, available))
    lines: list[str] = []
    for group in dict.fromkeys(command.group for command in available.values()):
        lines += ["", f"{group}:"]
        lines += [
            f"  {name:<{width}}  {command.help}"
            for name, command in available.items()
            if command.group == group
        ]
    return "\n".join(lines[1:])


def _registered_commands(existing: dict[str, Command]) -> dict[str, Command]:
    """Commands of analyses that plug-ins register in ways that their text does not show."""
    from visprism.analyses import ANALYSES

    return {
        name: Command(
            _phrase((ANALYSES[name].__doc__ or "").partition("\n")[0]),
            _adder(name),
            ANALYSES[name].group,  # pyrefly: ignore (a class)
            MEASURED,
        )
        for name in ANALYSES
        if name not in existing
    }


def _adder(name: str) -> Callable[[argparse.ArgumentParser], None]:
    return lambda to: study_commands.add_analysis(to, name)


def _phrase(line: str) -> str:
    """A docstring's first line as a phrase: without a full stop, in lower case."""
    line = line.rstrip(".")
    acronym = len(line) > 1 and line[1].isupper()  # CKA, ECE
    return line if acronym else line[:1].lower() + line[1:]
