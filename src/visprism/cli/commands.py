"""Commands: what each module of the command line adds its own to."""

from argparse import ArgumentParser, RawDescriptionHelpFormatter, _SubParsersAction
from collections.abc import Callable

from visprism.cli.naming import BOTH
from visprism.cli.options import measured_options


class Commands:
    """The commands of a parser."""

    def __init__(self, parsers: "_SubParsersAction[ArgumentParser]") -> None:
        self._parsers = parsers

    def add(self, name: str, run: Callable, help: str, epilog: str = "") -> ArgumentParser:
        """One that calls `run` with what was read; `help` is a phrase."""
        new = self._parsers.add_parser(
            name,
            help=help,
            description=help[0].upper() + help[1:] + ".",
            epilog=epilog,
            formatter_class=RawDescriptionHelpFormatter,
        )
        new.set_defaults(run=run)
        return new

    def measuring(
        self, name: str, run: Callable, help: str, *, limit: int | None = None
    ) -> ArgumentParser:
        """One that measures models on images: on `limit`, if the user names no other number."""
        if limit:
            help += f", on {limit:,} images if no --limit is named"
        new = self.add(name, run, help, BOTH)
        measured_options(new)
        new.set_defaults(limit=limit)
        return new
