"""Several processes give the answer of one (src/visprism/passes/features.py)."""

import os
import runpy
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from internals import world_size

from visprism import Result, assert_results_equal

SCRIPT = Path(__file__).with_name("observe_in_processes.py")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.mark.slow
def test_two_processes_give_the_answer_of_one(tmp_path, monkeypatch):
    script = runpy.run_path(str(SCRIPT))
    alone = script["observed"]()

    # What torchrun sets; this process is rank 0.
    for name, value in {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": "2",
        "RANK": "0",
    }.items():
        monkeypatch.setenv(name, value)
    other = subprocess.Popen(
        [sys.executable, str(SCRIPT), str(tmp_path)],
        env=os.environ | {"RANK": "1"},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        together = script["observed"]()
        _, errors = other.communicate(timeout=120)
    finally:
        other.kill()  # does nothing where it has ended
    assert other.returncode == 0, errors
    assert world_size() == 1  # the processes have parted again

    for n, expected, results in zip(script["IMAGES"], alone, together, strict=True):
        assert len(results) == 7
        for name, ours in results.items():
            assert_results_equal(expected[name], ours)
            theirs = Result.load(tmp_path / f"{name}-{n}.npz")
            for column, values in ours.columns().items():  # bit for bit
                np.testing.assert_array_equal(values, theirs.columns()[column])
            assert (ours.provenance.images, ours.provenance.processes) == (n, 2)
            assert ours.provenance == theirs.provenance
