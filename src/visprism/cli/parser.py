"""The parser of the command line; a command's arguments are added when it is the one asked for.

Adding the arguments of an analysis imports it, and torch with it; ``visprism --help`` needs
only names and first lines.
"""

from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version

from visprism.cli import anatomy, catalogue, demo, harmonize, study_commands, train
from visprism.cli.naming import BOTH, DATA, MODEL


@dataclass(frozen=True)
class Command:
    """One command: what its help says, and a function that adds its arguments."""

    help: str  # a noun phrase or a sentence that starts with a verb, without a full stop
    add: Callable[[ArgumentParser], None]
    epilog: str = ""


def commands() -> dict[str, Command]:
    """Every command by name, in the order of the help."""
    examine = Command(study_commands.EXAMINE_HELP, study_commands.add_examine, BOTH)
    analyses = {
        name: Command(_phrase(line), _adder(name), BOTH)
        for name, line in study_commands.summaries().items()
    }
    rest = {
        "anatomy": Command("blocks of a model: kind, stage, output, cost", anatomy.add, MODEL),
        "models": Command(
            "list available models, or search all sources", catalogue.add_models, MODEL
        ),
        "data": Command("list available data sets", catalogue.add_data, DATA),
        "train": Command("train a model by a recipe", train.add_train, BOTH),
        "recipes": Command("list training recipes, or print one as YAML", train.add_recipes),
        "harmonize": Command(
            "replace convolutions of a CNN by self-attention", harmonize.add, BOTH
        ),
        "demo": Command("examine two small trained networks", demo.add),
    }
    return {"examine": examine, **analyses, **rest}


def parser(argv: Sequence[str] = ()) -> ArgumentParser:
    """The parser for these arguments; only the command that they name has its own arguments.

    Args:
        argv: the arguments; empty for a parser of which every command is complete.
    """
    root = ArgumentParser(
        prog="visprism",
        description="Show how a vision model works: take it apart into blocks, measure what "
        "each block does, and write a report.",
        epilog="`visprism COMMAND --help` explains a command.",
    )
    root.add_argument("--version", action="version", version=f"visprism {version('visprism')}")
    made = root.add_subparsers(title="commands", metavar="COMMAND", required=True)
    named = next((word for word in argv if not word.startswith("-")), None)
    known = commands()
    if named is not None and named not in known:
        known |= _plugin_commands()
    for name, command in known.items():
        sub = made.add_parser(
            name,
            help=command.help.replace("%", "%%"),
            description=command.help[0].upper() + command.help[1:] + ".",
            epilog=command.epilog,
            formatter_class=RawDescriptionHelpFormatter,
        )
        if name == named or not argv:
            command.add(sub)
    return root


def _plugin_commands() -> dict[str, Command]:
    """Commands of analyses that plug-ins registered."""
    from visprism.analyses import ANALYSES

    builtin = study_commands.summaries()
    lines = {n: (ANALYSES[n].__doc__ or "").partition("\n")[0] for n in ANALYSES}
    return {
        name: Command(_phrase(line), _adder(name), BOTH)
        for name, line in lines.items()
        if name not in builtin
    }


def _adder(name: str) -> Callable[[ArgumentParser], None]:
    return lambda to: study_commands.add_analysis(to, name)


def _phrase(line: str) -> str:
    """A docstring's first line as a phrase: without a full stop, in lower case."""
    line = line.rstrip(".")
    keep = len(line) > 1 and line[1].isupper()  # CKA, ECE
    return line if keep else line[:1].lower() + line[1:]
