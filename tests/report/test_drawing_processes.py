"""Figures are drawn, or say why not; processes that draw end with the one that began them."""

import multiprocessing
import os
import re
import select
import signal
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import pytest
from matplotlib.figure import Figure

from visprism.report.drawings import Drawing, _shared

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


def named(text):
    return Figure(label=text)


def end_process():
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere one process draws")
@pytest.mark.parametrize("at", [(0,), (3,), (2, 5), (4, 5)])
def test_a_process_that_is_killed_costs_the_figure_that_it_draws(at):
    todo = [
        Drawing(str(i), "a", f"label {i}", end_process if i in at else partial(named, f"f{i}"))
        for i in range(6)
    ]
    texts = [files["svg"].decode() for files in _shared(todo, ["svg"], 2)]
    lost = {i for i, text in enumerate(texts) if f"label {i}: not drawn. its process" in text}
    assert lost == {*at}
    assert all(f"f{i}" in text for i, text in enumerate(texts) if i not in at)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere one process draws")
@pytest.mark.parametrize(
    "error", [BlockingIOError("no"), RuntimeError("can't start new thread")]
)
def test_where_no_process_can_be_started_this_one_draws(monkeypatch, error):
    def fail(*_):
        raise error

    where = "start" if isinstance(error, OSError) else "_start_executor_manager_thread"
    owner = multiprocessing.context.ForkProcess if where == "start" else ProcessPoolExecutor
    monkeypatch.setattr(owner, where, fail)
    todo = [Drawing(str(i), "a", "", partial(named, f"f{i}")) for i in range(3)]
    texts = [files["svg"].decode() for files in _shared(todo, ["svg"], 2)]
    assert ["f0" in texts[0], "f1" in texts[1], "f2" in texts[2]] == [True] * 3


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere one process draws")
def test_no_process_is_left_after_a_kill_while_figures_are_drawn():
    command = [sys.executable, "-c", DRAW_FOREVER]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        pipe = process.stdout.fileno()
        assert [os.read(pipe, 1) for _ in range(2)] == [b"d", b"d"]
        process.kill()
        assert select.select([pipe], [], [], 10)[0]  # the end: nobody holds the pipe
        assert os.read(pipe, 1) == b""
