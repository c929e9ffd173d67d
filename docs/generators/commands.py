"""The reference of the command line, from its parser."""

import argparse
import os
from pathlib import Path

from visprism.cli.parser import command_parser, commands

HEAD = """\
# Command line

`visprism COMMAND --help` prints the same text. A command exits with 0 if it succeeded, 1 if a
measurement failed, 2 if an argument cannot be used, 130 after Ctrl-C and 143 after SIGTERM.
"""


def pages(folder: Path) -> dict[str, str]:
    """The list of commands by group, and one page for each command."""
    texts = {f"commands/{name}.md": _page(name) for name in commands()}
    return {"commands/index.md": _index()} | texts


def _index() -> str:
    by_group: dict[str, list[str]] = {}
    for name, command in commands().items():
        row = f"| [`visprism {name}`]({name}.md) | {_cell(command.help)} |"
        by_group.setdefault(command.group, []).append(row)
    parts = [HEAD]
    for group, rows in by_group.items():
        title = group[0].upper() + group[1:]
        table = "\n".join(["| command | what it does |", "|---|---|", *rows])
        parts.append(f"## {title}\n\n{table}")
    names = "\n".join(commands())
    parts.append(f"```{{toctree}}\n:hidden:\n\n{names}\n```")
    return "\n\n".join(parts) + "\n"


def _page(name: str) -> str:
    os.environ["COLUMNS"] = "64"  # the width that argparse wraps at
    parser = command_parser(name)
    parts = [
        f"# visprism {name}",
        f"{(parser.description or '').strip()}",
        f"```text\n{parser.format_usage().strip()}\n```",
    ]
    for group in parser._action_groups:
        rows = [_row(action) for action in group._group_actions]
        if rows:
            title = (group.title or "options").capitalize()
            table = "\n".join(["| argument | meaning |", "|---|---|", *rows])
            parts.append(f"## {title}\n\n{table}")
    if parser.epilog:
        parts.append(f"## Models and data\n\n```text\n{parser.epilog.strip()}\n```")
    return "\n\n".join(parts) + "\n"


def _row(action: argparse.Action) -> str:
    value = action.metavar or (
        f"{{{','.join(map(str, action.choices))}}}" if action.choices else ""
    )
    value = value if isinstance(value, str) else " ".join(value)
    words = [f"{flag} {value}".strip() for flag in action.option_strings] or [value]
    flags = ", ".join(f"`{_cell(word)}`" for word in words)
    return f"| {flags} | {_cell(action.help or '')} |"


def _cell(text: str) -> str:
    return " ".join(text.replace("%%", "%").replace("|", "\\|").replace("<", "\\<").split())
