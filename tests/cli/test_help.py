"""Help texts are complete, and read without the code that they describe."""

import argparse

import pytest

from visprism import ANALYSES
from visprism.cli import parser
from visprism.cli.parser import command_parser, commands
from visprism.kit.analysis import GROUPS

COMMANDS = [name for name in commands() if name != "sparsity"]


@pytest.fixture(autouse=True)
def without_plugins(monkeypatch):
    monkeypatch.setattr(parser, "entry_points", lambda **_: [])


@pytest.mark.parametrize("name", COMMANDS)
def test_every_argument_has_a_help_text_with_its_default(name):
    actions = command_parser(name)._actions
    flags = {flag for action in actions for flag in action.option_strings}
    assert "--json" in flags or name in ("completion", "look", "view")  # which print no table
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
