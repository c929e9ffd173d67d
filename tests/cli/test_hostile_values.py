"""Any value of any argument is accepted, or refused in one sentence with exit code 2."""

import random
import signal
from contextlib import contextmanager, suppress
from functools import cache

import pytest
from hostile_values import DATA, DEVICES, MODELS, TEXTS

from visprism.cli import main
from visprism.cli.parser import command_parser, commands
from visprism.core.errors import InputError

COMMANDS = ("examine", "landscape", "train", "harmonize")  # without -m slow
SAMPLE = 300  # of their cases
MEASURED = {"MODEL": "resnet20", "--data": "shapes?size=32", "--limit": "2", "--out": "out"}
TINY = {
    "variance": MEASURED | {"--batch-size": "2"},
    "landscape": MEASURED | {"--points": "3", "--ring-planes": "1", "--angles": "4"},
    "train": {
        "RECIPE": "quick",
        "--model": "resnet20",
        "--data": "shapes?size=32",
        "--out": "out",
        "--epochs": "1",
        "--limit": "4",
        "--test-limit": "4",
    },
    "harmonize": {"MODEL": "resnet20", "--out": "out", "--head-dim": "16"},
}


@cache
def parser_of(command):
    return command_parser(command)


def cases(names):
    """Every argument of commands and hostile text, in random order."""
    listed = [
        (command, action.option_strings[-1] if action.option_strings else "", text)
        for command in names
        for action in parser_of(command)._actions
        if action.nargs != 0  # flags and --help have no value
        for text in TEXTS
    ]
    return random.Random(0).sample(listed, len(listed))


def outcome(command, flag, text):
    """Whether the value of one argument is refused when a command line is read."""
    parser = parser_of(command)
    words = []
    for action in parser._actions:
        if action.option_strings and action.required:
            words += [f"{action.option_strings[-1]}=out"]
        elif not action.option_strings and action.nargs not in ("?", "*"):
            words += ["resnet20" if flag else text]
    words += [f"{flag}={text}"] if flag else []
    with suppress(InputError):
        parser.parse_known_args(words)
        return "accepted"
    return "refused"


@pytest.mark.parametrize("sample", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_every_argument_of_every_command_is_read_or_refused(sample):
    counted = {"refused": 0, "accepted": 0}
    for case in cases(COMMANDS)[:SAMPLE] if sample else cases(commands()):
        counted[outcome(*case)] += 1
    assert counted["refused"] > counted["accepted"] / 2 > 0


# What is refused later, when a command runs.


@contextmanager
def seconds(number):
    """Ends what runs inside after a number of seconds, as Ctrl-C does."""
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, number)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


OUTSIDE = ("/", "..", "../..")  # folders that a test must not write to
WITHIN = tuple(text for text in TEXTS if text not in OUTSIDE)
ARGUMENTS = {
    "MODEL": (*TEXTS, *MODELS),
    "--data": (*TEXTS, *DATA),
    "--device": (*TEXTS, *DEVICES),
    "--out": WITHIN,
    **dict.fromkeys(("--split", "--limit", "--batch-size", "--seed", "--size"), TEXTS),
    **dict.fromkeys(("--precision", "--formats", "--minutes"), TEXTS),
}
OF_MODELS, OF_DATA = ("MODEL", "--model"), ("--data", "--test-data", "--train-data")


def texts_of(argument):
    """Hostile texts of an argument of `landscape`, `train` or `harmonize`."""
    names = dict.fromkeys(OF_MODELS, MODELS) | dict.fromkeys(OF_DATA, DATA)
    texts = WITHIN if argument == "--out" else TEXTS
    return (*texts, *(names | {"--device": DEVICES}).get(argument, ()))


def arguments_of(command):
    """The arguments of a command that have a value: flags, and names in capitals."""
    return [
        action.option_strings[-1] if action.option_strings else action.metavar or action.dest
        for action in parser_of(command)._actions
        if action.nargs != 0
    ]


RUNS = random.Random(1).sample(
    [("variance", name, text) for name, texts in ARGUMENTS.items() for text in texts], 150
)  # of 598; each takes half a second
FEW = RUNS[:24]
for command in ("landscape", "train", "harmonize"):
    pairs = [(command, name, text) for name in arguments_of(command) for text in texts_of(name)]
    sample = random.Random(2).sample(pairs, 30)  # of 1000 or more
    RUNS += sample
    FEW += sample[:4]


def run(command, name, text, capsys):
    """Exit code of a command with one hostile value, and what it printed as an error."""
    words = TINY[command] | {name: text}
    line = [value if key.isupper() else f"{key}={value}" for key, value in words.items()]
    with seconds(20):
        code = main([command, *line])
    return code, capsys.readouterr().err


@pytest.mark.parametrize("command", ["landscape", "train", "harmonize"])
def test_the_arguments_of_a_command_are_those_that_are_tried(command):
    assert TINY[command].keys() <= set(arguments_of(command))


@pytest.mark.parametrize(
    ("command", "name", "text"),
    [pytest.param(*r, marks=[] if r in FEW else [pytest.mark.slow]) for r in RUNS],
    ids=lambda value: ascii(value)[:30],
)
def test_a_hostile_value_ends_in_a_sentence(command, name, text, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, printed = run(command, name, text, capsys)
    assert code in (0, 1, 2, 130), printed
    assert "Traceback" not in printed
    if code == 2:
        assert printed.strip().splitlines()[-1].startswith("visprism: ")
