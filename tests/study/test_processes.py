"""Studies that are killed and resumed."""

import runpy
import time
from pathlib import Path

import numpy as np
from forks import forked, forks

from visprism import Study
from visprism.estimates.questions import question_of

PROGRAM = Path(__file__).with_name("small_study.py")


def kill_after(seconds, folder):
    """Run the program and kill it; whether it was killed before it was done."""
    begun = forks().Event()
    process = forked(PROGRAM, "begin", begun, folder)
    assert begun.wait(120)
    process.join(seconds)
    killed = process.exitcode is None
    process.kill()
    process.join()
    assert killed or process.exitcode == 0
    return killed


def content(study):
    """Its results in their order, bit for bit."""
    entries = [(e.models, e.analysis, e.results) for e in study.entries]
    rows = [row for row in study.table() if question_of(row.question).topic != "cost"]
    return entries, repr(rows)  # NaN is not equal to itself; no two runs share timings


def test_a_study_that_was_killed_resumes_to_the_same_results(tmp_path):
    program = runpy.run_path(str(PROGRAM))
    start = time.monotonic()
    expected = program["study_in"](tmp_path / "undisturbed")
    seconds = time.monotonic() - start
    assert not expected.failures
    generator = np.random.default_rng(0)
    killed, folders = 0, [tmp_path / "0"]
    while killed < 2:
        if kill_after(generator.uniform(0.0, seconds), folders[-1]):
            killed += 1
        else:  # this study is complete
            folders.append(tmp_path / str(len(folders)))
    assert content(program["study_in"](folders[-1])) == content(expected)
    for folder in folders:
        assert content(Study.load(folder)) == content(expected)
    assert not list(tmp_path.rglob("*.tmp*"))
