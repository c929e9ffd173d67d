"""Figures are drawn, or say why not; processes that draw end with the one that began them."""

import os
import re
import sys
from functools import partial

import pytest
from forks import forked, forks

from visprism.report.drawings import Drawing, _shared


def draw_forever(pipe):
    forever = f"import os, time; os.write({pipe.fileno()}, b'd'); time.sleep(600)"
    list(_shared([Drawing("a", "a", "a", partial(exec, forever))] * 2, ["svg"], 2))


def test_a_figure_that_cannot_be_drawn_says_so():
    def fail():
        raise ZeroDivisionError("no blocks <&")

    svg = Drawing("a", "a", "Spectra: m", fail).files(["svg"])["svg"].decode()
    texts = " ".join(re.findall(r"<!-- (.*?) -->", svg))
    assert texts.startswith("Spectra: m: not drawn. ZeroDivisionError: no blocks")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere one process draws")
def test_no_process_is_left_after_a_kill_while_figures_are_drawn():
    ours, theirs = forks().Pipe(duplex=False)
    process = forked(__file__, "draw_forever", theirs)
    theirs.close()
    assert [os.read(ours.fileno(), 1) for _ in range(2)] == [b"d", b"d"]
    process.kill()
    assert ours.poll(10)  # the end: nobody holds the pipe
    assert os.read(ours.fileno(), 1) == b""
