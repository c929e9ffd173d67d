"""Arguments of every command. Built without torch: names that need it are checked later."""

import argparse
from importlib.metadata import version

from visprism.cli import (
    anatomy,
    catalogue,
    demo,
    examine,
    harmonize,
    hessian,
    landscape,
    outputs,
    train,
    trials,
)
from visprism.cli.commands import Commands

# In the order in which `visprism --help` names what they add.
_MODULES = (
    examine,
    hessian,
    landscape,
    outputs,
    trials,
    anatomy,
    catalogue,
    train,
    harmonize,
    demo,
)


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    root = argparse.ArgumentParser(
        prog="visprism",
        description="Take any vision model apart, watch its blocks on real images, and report.",
        epilog="`visprism COMMAND --help` tells more; `visprism demo` shows it all at work.",
    )
    root.add_argument("--version", action="version", version=f"visprism {version('visprism')}")
    commands = root.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in _MODULES:
        module.add_commands(Commands(commands))
    return root
