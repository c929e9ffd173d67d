"""Help texts: complete; the overview is held by a file, so that it changes on purpose.

``python -m pytest tests/cli/test_help.py`` names the file that differs;
``VISPRISM_WRITE_HELP=1`` before it writes the file anew.
"""

import argparse
import os
from pathlib import Path

import pytest
from internals import GROUPS, command_parser, commands, help_text

from visprism import ANALYSES
from visprism.cli import parser

HELP = Path(__file__).parent / "help" / "visprism.txt"
COMMANDS = [name for name in commands() if name != "sparsity"]


@pytest.fixture(autouse=True)
def eighty_columns_without_plugins(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(parser, "entry_points", lambda **_: [])


def test_the_help_of_visprism_is_the_file():
    if os.environ.get("VISPRISM_WRITE_HELP"):
        HELP.write_text(help_text(), encoding="utf-8")
    assert help_text() == HELP.read_text(encoding="utf-8"), f"{HELP} differs"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_argument_has_a_help_text_with_its_default(name):
    actions = command_parser(name)._actions
    flags = {flag for action in actions for flag in action.option_strings}
    assert "--json" in flags or name in ("completion", "view")  # which print no table
    for action in actions:
        if isinstance(action, argparse._HelpAction):
            continue
        assert action.help, action.dest
        assert not action.help.endswith(".")
        optional = not action.required and (action.option_strings or action.nargs == "?")
        assert not optional or "(default: " in action.help, action.dest


def test_declarations_read_as_text_are_those_of_the_registry():
    stated = parser.summaries()
    assert set(stated) == set(ANALYSES) - {"sparsity", "training-curvature"}
    for name, summary in stated.items():
        first = (ANALYSES[name].__doc__ or "").strip().partition("\n")[0]
        assert summary == parser.Summary(first, ANALYSES[name].group)
    assert parser.groups() == GROUPS
