"""``visprism view``: studies and live panels in a browser, on this machine alone."""

import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path

from visprism.cli.values import folder, nonnegative
from visprism.core.errors import InputError

_PORT, _LARGEST_PORT = 8765, 65535
_ARGUMENTS = {"workspace": "out", "checkpoints": "weights"}  # of settings -> of the command


def view(arguments: Namespace) -> None:
    """Serve the app until Ctrl-C."""
    from visprism.app import Settings
    from visprism.app.serve import serve

    try:
        settings = Settings(
            workspace=arguments.out,
            studies=tuple(arguments.studies),
            checkpoints=tuple(arguments.weights),
            data=("shapes", *(name for name in arguments.data if name != "shapes")),
        )
    except InputError as error:
        name, text = str(error).split(" ", 1)
        raise InputError(f"{_ARGUMENTS.get(name, name)} {text}") from error
    serve(settings, arguments.port, ready=lambda url: _announce(url, browser=arguments.browser))


def _announce(address: str, *, browser: bool) -> None:
    print(f"Open {address}", flush=True)
    print("Whoever has this address can use the app. Ctrl-C ends it.", file=sys.stderr)
    if browser:
        import webbrowser

        webbrowser.open(address)


def _port(text: str) -> int:
    number = nonnegative(text)
    if number > _LARGEST_PORT:
        raise ArgumentTypeError(f"must be at most {_LARGEST_PORT}, got {text!r}")
    return number


def add(to: ArgumentParser) -> None:
    """The arguments of ``view``."""
    to.add_argument(
        "studies", nargs="*", type=folder, metavar="STUDY", help="folders of studies to show"
    )
    to.add_argument(
        "--out",
        type=folder,
        default=Path("studies"),
        metavar="DIR",
        help="folder for new studies and uploads (default: studies)",
    )
    to.add_argument(
        "--weights",
        type=folder,
        action="append",
        default=[],
        metavar="DIR",
        help="folder with checkpoints that forms offer; repeatable (default: none)",
    )
    to.add_argument(
        "--data",
        action="append",
        default=[],
        metavar="DATA",
        help="images that forms offer beside shapes, see below; repeatable (default: none)",
    )
    to.add_argument(
        "--port",
        type=_port,
        default=_PORT,
        metavar="N",
        help=f"port of 127.0.0.1, or 0 for one that is free (default: {_PORT})",
    )
    to.add_argument(
        "--browser",
        action="store_true",
        help="open the page in the browser (default: print its address)",
    )
    to.set_defaults(run=view)
