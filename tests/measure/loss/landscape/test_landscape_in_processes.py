"""Several processes measure the landscape of one (src/visprism/measure/landscape)."""

import os
import runpy
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from visprism import Result

SCRIPT = Path(__file__).with_name("landscape_in_processes.py")


@pytest.mark.slow
def test_two_processes_share_the_points_and_give_the_same_bits(tmp_path, monkeypatch):
    script = runpy.run_path(str(SCRIPT))
    (tmp_path / "alone").mkdir()
    alone = script["surface"](tmp_path / "alone")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    around = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    for name, value in (around | {"RANK": "0"}).items():
        monkeypatch.setenv(name, value)
    other = subprocess.Popen(
        [sys.executable, str(SCRIPT), str(tmp_path)],
        env=os.environ | {"RANK": "1"},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        ours = script["surface"](tmp_path)
        _, errors = other.communicate(timeout=120)
    finally:
        other.kill()
    assert other.returncode == 0, errors
    theirs = Result.load(tmp_path / "theirs.npz")
    for name, column in alone.columns().items():
        np.testing.assert_array_equal(ours.columns()[name], column)
        np.testing.assert_array_equal(theirs.columns()[name], column)
    assert ours.provenance.processes == 2
    points = {file.name: len(np.load(file)["number"]) for file in tmp_path.glob("part.*")}
    assert points == {"part.0": 9, "part.1": 9}  # of the 18 points
