"""Several processes measure what one does (src/visprism/loss/)."""

import os
import runpy
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from visprism import Result

SCRIPT = Path(__file__).with_name("in_processes.py")


@pytest.mark.slow
def test_two_processes_find_the_same_of_three_batches_and_of_one(tmp_path, monkeypatch):
    measured = runpy.run_path(str(SCRIPT))["measured"]
    alone = measured()
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
        ours = measured()
        _, errors = other.communicate(timeout=120)
    finally:
        other.kill()
    assert other.returncode == 0, errors
    for number, (one, two) in enumerate(zip(alone, ours, strict=True)):
        theirs = Result.load(tmp_path / f"theirs{number}.npz")
        for name, column in one.columns().items():
            mine, its = two.columns()[name], theirs.columns()[name]
            np.testing.assert_array_equal(mine, its)
            if name in {"residual", "products"}:  # rounding, and work that was shared
                continue
            if column.dtype.kind == "f":
                np.testing.assert_allclose(mine, column, rtol=1e-7, atol=1e-9)
            else:
                np.testing.assert_array_equal(mine, column)
        assert two.provenance.images == one.provenance.images == 10
        assert two.provenance.processes == 2
