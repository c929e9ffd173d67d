"""Processes that draw figures end with the process that started them."""

import select
import subprocess
import sys

import pytest

PROGRAM = """
import os, time
from visprism.report.drawings import Drawing, _shared

def forever():
    os.write(1, b"drawing ")
    time.sleep(600)

list(_shared([Drawing("a", "a", "a", forever)] * 2, ["svg"], 2))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere one process draws")
def test_no_process_is_left_after_a_kill_while_figures_are_drawn():
    process = subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE)
    with process, process.stdout as output:
        assert output.read(16) == b"drawing drawing "
        process.kill()
        assert select.select([output], [], [], 10)[0]  # the end: nobody holds the pipe
        assert output.read() == b""
