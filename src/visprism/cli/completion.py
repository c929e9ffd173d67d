"""``visprism completion SHELL``: completion of commands, options, values and names.

The scripts are made from the same parsers as the help, so that they name what the installed
version has, with its plug-ins.
"""

import argparse
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

SHELLS = ("bash", "zsh", "fish")
_FILES = "FILES"  # in place of words: names of files
_PREFIXES = {
    "MODEL": ("timm:", "torchvision:", "hf:"),
    "DATA": ("folder:", "parquet:", "hf:"),
}
_PATHS = ("DIR", "FILE", "MODEL@FILE")


@dataclass(frozen=True)
class Flag:
    """One flag of a command, with what may follow it."""

    names: tuple[str, ...]
    values: tuple[str, ...] | None  # None: nothing follows; empty: anything
    help: str


@dataclass(frozen=True)
class Completions:
    """What may follow the name of a command."""

    help: str
    flags: tuple[Flag, ...]
    words: tuple[str, ...]  # in place of a flag


def completion(arguments: Namespace) -> None:
    """Print the script of a shell."""
    print(_SCRIPTS[arguments.shell](completions()))


def completions() -> dict[str, Completions]:
    """What may follow each command, those of plug-ins too."""
    from visprism.cli.parser import command_parser, commands

    names = _names()
    made = {}
    for name, command in commands().items():
        actions = [a for a in command_parser(name)._actions if a.help != argparse.SUPPRESS]
        positional = [a for a in actions if not a.option_strings]
        words = [w for a in positional for w in _values(a, names) or ()]
        flags = tuple(
            Flag(tuple(a.option_strings), _values(a, names), (a.help or "").partition(" (")[0])
            for a in actions
            if a.option_strings
        )
        made[name] = Completions(command.help, flags, tuple(words))
    return made


def _names() -> dict[str, tuple[str, ...]]:
    """Words by the form of a value that an argument's help states."""
    from visprism.cli.catalog import read_catalog
    from visprism.images import DATA
    from visprism.models.pretrained import pretrained_cards
    from visprism.training import RECIPES

    models = (*read_catalog(), *pretrained_cards())
    return {
        "MODEL": (*models, *_PREFIXES["MODEL"]),
        "DATA": (*(name for name in DATA if name not in _DIRECTORIES), *_PREFIXES["DATA"]),
        "RECIPE": tuple(RECIPES),
    }


_DIRECTORIES = ("folder", "parquet", "hf")  # data whose names are prefixes


def _values(
    action: argparse.Action, names: Mapping[str, tuple[str, ...]]
) -> tuple[str, ...] | None:
    form = action.metavar if isinstance(action.metavar, str) else ""
    if action.nargs == 0 or isinstance(action, argparse.BooleanOptionalAction):
        return None
    if action.choices is not None:
        return tuple(map(str, action.choices))
    if form.startswith("{"):
        return tuple(form.strip("{}").split(","))
    if form in _PATHS:
        return (_FILES,)
    return names.get(form, ())


def _bash(commands: Mapping[str, Completions]) -> str:
    cases = []
    for name, command in commands.items():
        flags = " ".join(flag for f in command.flags for flag in f.names)
        following = "".join(
            f"        {'|'.join(flag.names)}) {_bash_reply(flag.values)}; return ;;\n"
            for flag in command.flags
            if flag.values is not None
        )
        cases.append(
            f"    {name})\n      case $previous in\n{following}      esac\n"
            f"      if [[ $current == -* ]]; then {_bash_reply(flags.split())}\n"
            f"      else {_bash_reply(command.words)}; fi ;;\n"
        )
    return (
        '# bash completion of visprism: eval "$(visprism completion bash)"\n'
        "_visprism() {\n"
        "  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}\n"
        "  COMPREPLY=()\n"
        f"  if [[ $COMP_CWORD == 1 ]]; then {_bash_reply(list(commands))}; return; fi\n"
        "  case ${COMP_WORDS[1]} in\n" + "".join(cases) + "  esac\n}\n"
        "complete -o default -F _visprism visprism"
    )


def _bash_reply(values: Sequence[str]) -> str:
    if _FILES in values:
        return 'COMPREPLY=($(compgen -f -- "$current"))'
    return f'COMPREPLY=($(compgen -W "{" ".join(values)}" -- "$current"))'


def _zsh(commands: Mapping[str, Completions]) -> str:
    cases = []
    for name, command in commands.items():
        flags = [flag for f in command.flags for flag in f.names]
        following = "".join(
            f"        {'|'.join(flag.names)}) {_zsh_reply(flag.values)}; return ;;\n"
            for flag in command.flags
            if flag.values is not None
        )
        cases.append(
            f"    {name})\n      case $previous in\n{following}      esac\n"
            f"      if [[ $words[CURRENT] == -* ]]; then {_zsh_reply(flags)}\n"
            f"      else {_zsh_reply(command.words)}; fi ;;\n"
        )
    return (
        "#compdef visprism\n"
        '# zsh completion of visprism: eval "$(visprism completion zsh)", after compinit\n'
        "_visprism() {\n"
        "  local previous=$words[CURRENT-1]\n"
        f"  if (( CURRENT == 2 )); then {_zsh_reply(list(commands))}; return; fi\n"
        "  case $words[2] in\n" + "".join(cases) + "  esac\n}\n"
        "(( $+functions[compdef] )) && compdef _visprism visprism"
    )


def _zsh_reply(values: Sequence[str]) -> str:
    if _FILES in values or not values:
        return "_files"
    return f"compadd -- {' '.join(values)}"


def _fish(commands: Mapping[str, Completions]) -> str:
    lines = [
        "# fish completion of visprism: visprism completion fish | source",
        "complete -c visprism -f",
    ]
    for name, command in commands.items():
        first = f"complete -c visprism -n __fish_use_subcommand -a {name}"
        lines.append(f"{first} -d {_fish_text(command.help)}")
        inside = f"complete -c visprism -n '__fish_seen_subcommand_from {name}'"
        words = [word for word in command.words if word != _FILES]
        if words:
            lines.append(f"{inside} -a {_fish_text(' '.join(words))}")
        for flag in command.flags:
            names = " ".join(
                f"-l {n[2:]}" if n.startswith("--") else f"-s {n[1:]}" for n in flag.names
            )
            lines.append(
                f"{inside} {names}{_fish_values(flag.values)} -d {_fish_text(flag.help)}"
            )
    return "\n".join(lines)


def _fish_values(values: Sequence[str] | None) -> str:
    if values is None:
        return ""
    if _FILES in values:
        return " -rF"
    return f" -xa {_fish_text(' '.join(values))}" if values else " -x"


def _fish_text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


_SCRIPTS: dict[str, Callable[[Mapping[str, Completions]], str]] = {
    "bash": _bash,
    "zsh": _zsh,
    "fish": _fish,
}


def add(to: ArgumentParser) -> None:
    """The arguments of ``completion``."""
    to.add_argument("shell", choices=SHELLS, metavar="SHELL", help="bash, zsh or fish")
    to.set_defaults(run=completion)
