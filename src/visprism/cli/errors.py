"""Errors of the command line: what ended a command, as one sentence and an exit code."""

import argparse
import re
import signal
from collections.abc import Iterable
from typing import NoReturn

from visprism.core.errors import InputError, printable


def outcome(error: BaseException, flags: Iterable[str]) -> tuple[str, int] | None:
    """The sentence and the exit code of what ended a command; None for a bug.

    Args:
        error: what was raised.
        flags: of the command, by which its arguments are called.
    """
    if isinstance(error, KeyboardInterrupt):  # a command that has kept results says so
        return f"interrupted; {error or 'nothing was written'}", 128 + signal.SIGINT
    if isinstance(error, InputError | OSError):
        return printable(with_flags(str(error), flags), keep="\n"), 2
    if isinstance(error, MemoryError) or re.search("allocate memory|out of memory", str(error)):
        reason = printable(str(error).strip().partition("\n")[0]) or "no details"
        remedy = "Use fewer images, smaller batches or smaller numbers."
        return f"there is not enough memory ({reason}). {remedy}", 2
    return None


class Parser(argparse.ArgumentParser):
    """A parser whose errors are `InputError`, in the words of every other error."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage."""
        typed = re.fullmatch(r"argument (\S+): (?:\w+ )?(must be .*)", message, re.DOTALL)
        if typed is not None:
            message = f"{typed[1]} {typed[2]}"
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
