"""A measurement by two processes: this one, and one that runs a script."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

# Of programs that import what tests share.
SHARED = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}


def in_two_processes(script, target, here):
    """What `here()` gives in this process, the first of two; the second runs `script`."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    joined = {  # what torchrun sets
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "RANK": "0",
        "LOCAL_RANK": "0",
        "TORCHELASTIC_RUN_ID": "none",
    }
    other = subprocess.Popen(
        [sys.executable, str(script), str(target)],
        env=os.environ | joined | SHARED | {"RANK": "1", "LOCAL_RANK": "1"},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in joined.items():
                patch.setenv(name, value)
            ours = here()
        _, errors = other.communicate(timeout=240)
    finally:
        other.kill()  # does nothing where it has ended
    assert other.returncode == 0, errors
    return ours
