"""Figures are drawn, or say why not; processes that draw end with the one that began them."""

import os
import re
import select
import subprocess
import sys

import pytest

from visprism.report.drawings import Drawing

DRAW_FOREVER = """
from functools import partial
from visprism.report.drawings import Drawing, _shared
draw = partial(exec, "import os, time; os.write(1, b'd'); time.sleep(600)")
list(_shared([Drawing("a", "a", "a", draw)] * 2, ["svg"], 2))
"""


def test_a_figure_that_cannot_be_drawn_says_so():
    def fail():
        raise ZeroDivisionError("no blocks <&")

    svg = Drawing("a", "a", "Spectra: m", fail).files(["svg"])["svg"].decode()
    texts = " ".join(re.findall(r"<!-- (.*?) -->", svg))
    assert texts.startswith("Spectra: m: not drawn. ZeroDivisionError: no blocks")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere one process draws")
def test_no_process_is_left_after_a_kill_while_figures_are_drawn():
    command = [sys.executable, "-c", DRAW_FOREVER]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        pipe = process.stdout.fileno()
        assert [os.read(pipe, 1) for _ in range(2)] == [b"d", b"d"]
        process.kill()
        assert select.select([pipe], [], [], 10)[0]  # the end: nobody holds the pipe
        assert os.read(pipe, 1) == b""
