"""Ctrl-C ends a command wherever it arrives, and leaves what is complete."""

import signal
import subprocess
import sys
import time

import pytest

MODEL = """
import os, signal, time
import torch
from torch import nn

class Hooked:
    def __del__(self):  # Python prints an error that is raised here, and continues
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.2)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.head, self.passes = nn.Conv2d(3, 4, 3), nn.Linear(4, 10), 0

    def forward(self, x):
        self.passes += 1
        if self.passes == 12:
            {}
        return self.head(self.conv(x).relu().mean((2, 3)))

def net():
    return Net()
"""
HOOK = "Hooked()"
BLOCKED = "os.kill(os.getpid(), signal.SIGINT); time.sleep(600)"
OTHER = "resnet20.shapes"


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("moment", [HOOK, BLOCKED])
def test_ctrl_c_in_a_hook_or_in_a_pass_without_end_is_heard(moment, tmp_path):
    (tmp_path / "net.py").write_text(MODEL.format(moment))
    words = f"variance {OTHER} {tmp_path / 'net.py'}:net --data shapes --limit 64 --out".split()
    command = [sys.executable, "-m", "visprism", *words, str(tmp_path / "out")]
    begin = time.monotonic()
    process = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=120)
    assert process.returncode == 128 + signal.SIGINT
    assert process.stderr.splitlines()[-1].startswith("visprism: interrupted; ")
    assert "Traceback" not in process.stderr
    assert "Exception ignored" not in process.stderr
    assert time.monotonic() - begin < 60


def test_a_second_signal_ends_a_command_at_once(tmp_path):
    """The first one is heard, and what follows it takes long."""
    program = """
import signal, sys, time
from visprism.core.interruption import check_interruption, on_interruption, watch_signals
watch_signals()
with on_interruption(lambda: "much is kept"):
    print("ready", flush=True)
    while True:
        try:
            check_interruption()
        except KeyboardInterrupt:
            print("heard", flush=True)
            time.sleep(600)
"""
    command = [sys.executable, "-c", program]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "heard\n"
        time.sleep(1.2)  # until it is not taken for the first
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=10)
    assert process.returncode == 128 + signal.SIGINT
    assert said == "visprism: interrupted; much is kept\n"
