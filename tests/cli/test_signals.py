"""A signal at any time ends a command in one sentence, and the same command goes on."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest
import torch
from safetensors.torch import load_file

from visprism.study import Study

pytestmark = pytest.mark.slow
COMMANDS = {
    "examine": "examine resnet20.shapes --data shapes?size=32 --limit 32 --batch-size 8 "
    "--analyses variance,calibration,ablation --minutes none --out out",
    "landscape": "landscape vit_pico_patch4_32.shapes --data shapes?size=32 --limit 16 "
    "--points 9 --minutes none --out out",
    "harmonize": "harmonize resnet20.shapes --data shapes?size=32 --search quick --epochs 1 "
    "--limit 256 --head-dim 16 --repeats 2 --out out",
    "train": "train quick --model resnet20 --data shapes?size=32 --epochs 2 --limit 2048 "
    "--test-limit 32 --size 16 --checkpoint-minutes 0.001 --resume --out",
}
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


def started(command, folder):
    """The process of a command, in a group of its own, once it has printed a line."""
    process = subprocess.Popen(
        [sys.executable, "-m", "visprism", *command.split()],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout.readline()
    return process


def ended(process):
    """Exit code of a process that is given a minute to end, and its output."""
    printed, _ = process.communicate(timeout=200)
    assert "Traceback" not in printed, printed
    return process.returncode, printed.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("command", "number"),
    [
        ("examine", signal.SIGINT),
        ("examine", signal.SIGTERM),
        ("landscape", signal.SIGTERM),
        ("harmonize", signal.SIGINT),
    ],
)
def test_a_command_ends_at_a_signal_and_goes_on(tmp_path, command, number):
    generator = random.Random(int(number))
    process = started(COMMANDS[command], tmp_path)
    time.sleep(generator.uniform(0, 4))
    process.send_signal(number)
    code, last = ended(process)
    assert code in (CODES[number], 0)
    assert last.startswith("visprism: interrupted; ") == (code != 0)
    assert not list(tmp_path.rglob("*.tmp*"))
    assert ended(started(COMMANDS[command], tmp_path))[0] == 0
    assert not list(tmp_path.rglob("*.tmp*"))
    if command != "harmonize":
        assert not Study.load(tmp_path / "out").failures


def test_an_impatient_second_signal_changes_nothing(tmp_path):
    generator = random.Random(0)
    for _ in range(3):
        process = started(COMMANDS["examine"], tmp_path)
        time.sleep(generator.uniform(0.5, 3))
        for _ in range(3):
            process.send_signal(signal.SIGINT)
            time.sleep(generator.uniform(0.02, 0.3))
        code, last = ended(process)
        assert code in (130, 0)
        assert last.startswith("visprism: interrupted; ") == (code != 0)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Weights of a training run that no signal ended."""
    folder = tmp_path_factory.mktemp("undisturbed")
    assert ended(started(f"{COMMANDS['train']} out", folder))[0] == 0
    return load_file(folder / "out" / "model.safetensors")


@pytest.mark.parametrize("number", CODES, ids=lambda n: signal.Signals(n).name)
def test_training_ends_at_a_signal_and_goes_on_to_the_same_bits(tmp_path, undisturbed, number):
    generator = random.Random(int(number))
    process = started(f"{COMMANDS['train']} out", tmp_path)
    time.sleep(generator.uniform(0, 2))
    process.send_signal(number)
    assert ended(process)[0] == CODES[number]
    assert ended(started(f"{COMMANDS['train']} out", tmp_path))[0] == 0
    weights = load_file(tmp_path / "out" / "model.safetensors")
    assert all(torch.equal(weights[name], undisturbed[name]) for name in undisturbed)


def test_a_folder_that_vanishes_ends_a_study_in_a_sentence(tmp_path):
    process = started(COMMANDS["examine"], tmp_path)
    while not (tmp_path / "out" / "study.json").exists():
        time.sleep(0.01)
    (tmp_path / "out").rename(tmp_path / "elsewhere")
    code, last = ended(process)
    assert code == 2
    assert "could not be written" in last
