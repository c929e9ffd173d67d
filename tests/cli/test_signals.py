"""A signal at any time ends a command in one sentence, and the same command goes on."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from threading import Timer

import pytest
import torch
from safetensors.torch import load_file

from visprism import Study

pytestmark = pytest.mark.slow
COMMANDS = {
    "examine": "examine resnet20.shapes --data shapes?size=32 --limit 32 --batch-size 8 "
    "--analyses variance,calibration,ablation --minutes none --out out",
    "landscape": "landscape vit_pico_patch4_32.shapes --data shapes?size=32 --limit 16 "
    "--points 5 --minutes none --out out",
    "harmonize": "harmonize resnet20.shapes --data shapes?size=32 --search quick --epochs 1 "
    "--limit 64 --head-dim 8 --repeats 2 --set batch_size=16 --set warmup=0 --out out",
    "train": "train quick --model resnet20 --data shapes?size=32 --epochs 2 --limit 1024 "
    "--test-limit 32 --size 16 --checkpoint-minutes 0.001 --resume --out",
}
SERVER = Path(__file__).with_name("run_commands_in_forks.py")
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


class Command:
    """A command in a process of its own, which has printed a line."""

    def __init__(self, server, words, folder):
        (folder / "output").unlink(missing_ok=True)
        os.mkfifo(folder / "output")
        print(json.dumps([str(folder), words.split()]), file=server.stdin, flush=True)
        self.number, self.server = int(server.stdout.readline()), server
        self.output = (folder / "output").open()
        assert self.output.readline()

    def send_signal(self, number):
        os.kill(self.number, number)

    def ended(self):
        """Its exit code and the last line that it printed."""
        hung = Timer(200, self.send_signal, [signal.SIGKILL])
        hung.start()
        with self.output:
            printed = self.output.read()
        hung.cancel()
        assert "Traceback" not in printed, printed
        return int(self.server.stdout.readline()), printed.strip().splitlines()[-1]


@pytest.fixture(scope="module")
def started():
    """A function that starts a command in a folder."""
    with subprocess.Popen(
        [sys.executable, str(SERVER)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    ) as server:
        yield partial(Command, server)


@pytest.mark.parametrize(
    ("command", "number", "seconds"),  # of work before the signal
    [
        ("examine", signal.SIGINT, 0.5),
        ("examine", signal.SIGTERM, 2.5),
        ("landscape", signal.SIGTERM, 1.0),
        ("harmonize", signal.SIGINT, 2.0),
    ],
)
def test_a_command_ends_at_a_signal_and_goes_on(started, tmp_path, command, number, seconds):
    process = started(COMMANDS[command], tmp_path)
    time.sleep(seconds)
    process.send_signal(number)
    code, last = process.ended()
    assert code in (CODES[number], 0)
    assert last.startswith("visprism: interrupted; ") == (code != 0)
    assert not list(tmp_path.rglob("*.tmp*"))
    assert started(COMMANDS[command], tmp_path).ended()[0] == 0
    assert not list(tmp_path.rglob("*.tmp*"))
    if command != "harmonize":
        assert not Study.load(tmp_path / "out").failures


def test_an_impatient_second_signal_changes_nothing(started, tmp_path):
    generator = random.Random(0)
    for _ in range(3):
        process = started(COMMANDS["examine"], tmp_path)
        time.sleep(generator.uniform(0.5, 3))
        for _ in range(3):
            process.send_signal(signal.SIGINT)
            time.sleep(generator.uniform(0.02, 0.3))
        code, last = process.ended()
        assert code in (130, 0)
        assert last.startswith("visprism: interrupted; ") == (code != 0)


@pytest.fixture(scope="module")
def undisturbed(started, tmp_path_factory):
    """Weights of a training run that no signal ended."""
    folder = tmp_path_factory.mktemp("undisturbed")
    assert started(f"{COMMANDS['train']} out", folder).ended()[0] == 0
    return load_file(folder / "out" / "model.safetensors")


@pytest.mark.parametrize("number", CODES, ids=lambda n: signal.Signals(n).name)
def test_training_ends_at_a_signal_and_goes_on_to_the_same_bits(
    started, tmp_path, undisturbed, number
):
    process = started(f"{COMMANDS['train']} out", tmp_path)
    while not (tmp_path / "out" / "last.ckpt").exists():  # of 16 steps
        time.sleep(0.01)
    time.sleep(random.Random(int(number)).uniform(0, 0.2))
    process.send_signal(number)
    assert process.ended()[0] == CODES[number]
    assert started(f"{COMMANDS['train']} out", tmp_path).ended()[0] == 0
    weights = load_file(tmp_path / "out" / "model.safetensors")
    assert all(torch.equal(weights[name], undisturbed[name]) for name in undisturbed)


def test_a_folder_that_vanishes_ends_a_study_in_a_sentence(started, tmp_path):
    process = started(COMMANDS["examine"], tmp_path)
    while not (tmp_path / "out" / "study.json").exists():
        time.sleep(0.01)
    (tmp_path / "out").rename(tmp_path / "elsewhere")
    code, last = process.ended()
    assert code == 2
    assert "could not be written" in last
