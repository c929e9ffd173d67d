"""Errors of the command line: one sentence, in which arguments are called by their flags."""

import argparse
import re
from collections.abc import Iterable
from typing import NoReturn

from visprism.core.errors import InputError


class Parser(argparse.ArgumentParser):
    """A parser whose errors are `InputError`, in the words of every other error."""

    def parse_known_args(self, args=None, namespace=None):  # noqa: ANN001, ANN201
        """As argparse does, which takes the value of ``--flag=--`` for no value."""
        for word in args or ():
            flag, separator, value = word.partition("=")
            if flag.startswith("--") and separator and value == "--":
                raise InputError(f"{flag} must have a value, got '--'")
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage."""
        typed = re.fullmatch(r"argument (\S+): (?:\w+ )?(must be .*)", message, re.DOTALL)
        choice = re.fullmatch(
            r"argument (\S+): invalid choice: (.*) \(choose from (.*)\)", message, re.DOTALL
        )
        if typed is not None:
            message = f"{_long(typed[1])} {typed[2]}"
        elif choice is not None:
            message = f"{_long(choice[1])} must be one of {choice[3]}, got {choice[2]}"
        raise InputError(f"{message}. `{self.prog} --help` lists the arguments.")


def flags_of(parser: argparse.ArgumentParser) -> list[str]:
    """Every flag of a parser that has a long form."""
    return [f for a in parser._actions for f in a.option_strings if f.startswith("--")]


def with_flags(text: str, flags: Iterable[str]) -> str:
    """The text of an error in which names of arguments are flags.

    Below the command line an error names an argument of Python.

    Example:
        >>> with_flags("out must be a folder, got x. Pass fresh=True.", ["--out", "--fresh"])
        '--out must be a folder, got x. Pass --fresh.'
    """
    names = {flag[2:].replace("-", "_"): flag for flag in flags}
    first = re.match(r"(\w+) must be ", text)
    if first is not None and first[1] in names:
        text = names[first[1]] + text[first.end(1) :]
    return re.sub(r"\b(\w+)=True\b", lambda m: names.get(m[1], m[0]), text)


def _long(flags: str) -> str:
    """The long form of an option, or the name of a positional argument."""
    return flags.rpartition("/")[2]
