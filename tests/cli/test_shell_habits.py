"""Laws of the command line in shells and logs (docs/command_line.md)."""

import json
import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import visprism
from visprism.cli import main
from visprism.cli.completion import completions
from visprism.cli.parser import command_parser, commands

PACKAGE = Path(visprism.__file__).parent
PAGE = PACKAGE.parents[1] / "docs" / "command_line.md"
SILENT = {"completion", "view"}  # a script, and a server


# JSON.


@pytest.mark.parametrize("name", [n for n in commands() if n not in {"sparsity", *SILENT}])
def test_every_command_that_prints_has_json(name):
    assert "--json" in command_parser(name).format_help()


@pytest.mark.parametrize(
    ("words", "key", "value"),
    [
        (["models", "resnet20"], "parameters", 272474),
        (["models", "--trained", "resnet20.shapes"], "name", "resnet20.shapes"),
        (["data"], "data", "shapes"),
        (["recipes"], "recipe", "quick"),
        (["models", "resnet20", "--cost", "--batch-size", "1"], "parameters", 272474),
    ],
)
def test_json_of_a_list_has_an_object_for_each_row(capsys, words, key, value):
    assert main([*words, "--json"]) == 0
    assert value in [row[key] for row in json.loads(capsys.readouterr().out)]


def test_json_of_anatomy_sums_to_its_totals(capsys):
    assert main(["anatomy", "resnet20", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert sum(block["macs"] for block in content["blocks"]) == content["macs"]
    assert content["parameters"] == 272474


def test_json_of_a_recipe_is_its_yaml(capsys):
    import yaml

    assert main(["recipes", "quick"]) == 0
    expected = yaml.safe_load(capsys.readouterr().out)
    assert main(["recipes", "quick", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == expected


def test_doctor_states_versions_devices_and_folders(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("VISPRISM_HOME", str(tmp_path))
    assert main(["doctor", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["system"]["Python"] == ".".join(map(str, sys.version_info[:3]))
    assert content["packages"]["torch"][0].isdecimal()
    assert content["devices"]["threads"] >= 1
    assert content["folders"]["data sets"] == f"{tmp_path / 'data'} (does not exist)"
    assert main(["doctor"]) == 0
    assert str(tmp_path / "data") in capsys.readouterr().out


# Completion.


def shell(name, script, code):
    """What a shell prints after it has read the script of completions."""
    program = shutil.which(name)
    if program is None:
        pytest.skip(f"{name} is not installed")
    done = subprocess.run(
        [program, "-c", f". {script}; {code}"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout.split()


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    from visprism.cli.completion import _SCRIPTS

    folder, made = tmp_path_factory.mktemp("completion"), completions()
    for name, script in _SCRIPTS.items():
        (folder / name).write_text(script(made) + "\n")
    return folder


CASES = [
    (["fourie"], "fourier"),
    (["fourier", "--prof"], "--profile"),
    (["fourier", "--profile", "rad"], "radial"),
    (["anatomy", "vit_pico_patch4_32.sh"], "vit_pico_patch4_32.shapes"),
    (["examine", "--data", "shap"], "shapes"),
    (["train", "qui"], "quick"),
    (["completion", "fis"], "fish"),
]


@pytest.mark.parametrize(("words", "expected"), CASES)
def test_bash_completes(scripts, words, expected):
    line = f"COMP_WORDS=(visprism {' '.join(words)}); COMP_CWORD={len(words)}; _visprism"
    reply = shell("bash", scripts / "bash", f'{line}; echo "${{COMPREPLY[@]}}"')
    assert expected in reply
    assert all(word.startswith(words[-1]) for word in reply)


@pytest.mark.parametrize(("words", "expected"), CASES)
def test_zsh_completes(scripts, words, expected):
    """`compadd` selects what fits; here it prints what it gets."""
    line = f"words=(visprism {' '.join(words)}); CURRENT={len(words) + 1}; _visprism"
    code = f'compadd() {{ print -l -- "$@" }}; {line}'
    assert expected in shell("zsh", scripts / "zsh", code)


@pytest.mark.parametrize(("words", "expected"), CASES)
def test_fish_completes(scripts, words, expected):
    code = f'complete -C "visprism {" ".join(words)}"'
    assert expected in shell("fish", scripts / "fish", code)


def test_the_scripts_name_every_command_and_flag():
    made = completions()
    assert set(made) == set(commands())
    for name, command in made.items():
        flags = {flag for entry in command.flags for flag in entry.names}
        assert flags == set(command_parser(name)._option_string_actions)


# Environment variables and exit codes.


def test_the_table_of_environment_variables_is_that_of_the_code():
    sources = "\n".join(p.read_text("utf-8") for p in PACKAGE.rglob("*.py"))
    reads = re.findall(r"environ(?:\.get|\.setdefault)?[\[(]\"(\w+)\"", sources)
    groups = re.findall(r"names = \((\"[A-Z_]+\"[^)]*)\)", sources)
    read = {*reads, *(name for group in groups for name in re.findall(r"\"([A-Z_]+)\"", group))}
    table = PAGE.read_text("utf-8").partition("## Environment")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    listed = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert read <= listed
    assert listed - read <= {"NO_COLOR", "COLUMNS"}  # rich and argparse read these


def test_the_table_of_exit_codes_is_that_of_the_code():
    from visprism import cli

    table = PAGE.read_text("utf-8").partition("## Exit codes")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| (\d+) \|", table, re.MULTILINE)
    stated = re.findall(r"\b(\d+)\b", cli.__doc__.partition("Exit codes:")[2].partition(".")[0])
    assert listed == stated == ["0", "1", "2", "130", "143"]


# Terminals and logs.

BARS = """
import time
from visprism.core.progress import console_progress
with console_progress() as bar:
    for _ in bar(range(3), "a long description of " + "many words " * 4):
        time.sleep(0.05)
"""


LOADING = """
import argparse
from visprism.cli.study_commands import add_analysis
add_analysis(argparse.ArgumentParser(), "fourier")
"""


def on_terminal(columns=80, script=BARS, **variables):
    """What a process prints to a terminal of so many columns."""
    master, slave = pty.openpty()
    environment = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR")}
    environment |= {"TERM": "xterm-256color", "COLUMNS": str(columns), **variables}
    process = subprocess.Popen([sys.executable, "-c", script], stderr=slave, env=environment)
    os.close(slave)
    text = b""
    while True:
        try:
            part = os.read(master, 4096)
        except OSError:  # the other side is closed
            break
        text += part
        if not part:
            break
    os.close(master)
    assert process.wait() == 0
    return text.decode()


COLOR = re.compile(r"\x1b\[[\d;]*3\d[\d;]*m")


def test_a_command_of_an_analysis_says_that_it_loads():
    text = on_terminal(script=LOADING)
    assert "Loading (0 s)" in text
    assert "Loading" not in text[text.rindex("\x1b[2K") :]  # and nothing of it stays


def test_bars_have_colors_except_under_no_color():
    assert COLOR.search(on_terminal())
    assert not COLOR.search(on_terminal(NO_COLOR="1"))


def test_a_bar_stays_on_one_line_of_a_narrow_terminal():
    text = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", on_terminal(40, NO_COLOR="1"))
    lines = [line for line in re.split(r"[\r\n]+", text) if line.strip()]
    assert max(map(len, lines)) <= 40
    assert all("3/3" in line or "/3" in line for line in lines)


def test_a_dumb_terminal_and_a_log_get_lines_without_control_characters():
    text = on_terminal(TERM="dumb").replace("\r\n", "\n")
    assert "done in" in text
    done = subprocess.run([sys.executable, "-c", BARS], capture_output=True, check=True)
    for log in (text.encode(), done.stderr):
        assert b"\r" not in log
        assert b"\x1b" not in log
