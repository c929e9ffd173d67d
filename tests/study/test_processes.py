"""Studies that are killed and resumed."""

import runpy
import time
from pathlib import Path

import numpy as np
import pytest
from forks import forked, forks

from visprism import Study

PROGRAM = Path(__file__).with_name("small_study.py")


@pytest.fixture(scope="module")
def program():
    return runpy.run_path(str(PROGRAM))


@pytest.fixture(scope="module")
def undisturbed(program, tmp_path_factory):
    """An uninterrupted study, and the seconds that it took."""
    start = time.monotonic()
    study = program["study_in"](tmp_path_factory.mktemp("undisturbed"))
    assert not study.failures
    return study, time.monotonic() - start


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


def assert_equal(study, expected):
    """The same results in the same order, bit for bit."""
    assert [(e.models, e.analysis) for e in study.entries] == [
        (e.models, e.analysis) for e in expected.entries
    ]
    for entry, other in zip(study.entries, expected.entries, strict=True):
        assert entry.results == other.results
    assert repr(study.table()) == repr(expected.table())  # NaN is not equal to itself


@pytest.mark.parametrize(
    ("kills", "seed"), [(3, 0), pytest.param(8, 1, marks=pytest.mark.slow)]
)
def test_a_study_that_was_killed_resumes_to_the_same_results(
    kills, seed, undisturbed, program, tmp_path
):
    expected, seconds = undisturbed
    generator = np.random.default_rng(seed)
    killed, folders = 0, [tmp_path / "0"]
    while killed < kills:
        if kill_after(generator.uniform(0.0, seconds), folders[-1]):
            killed += 1
        else:  # this study is complete
            folders.append(tmp_path / str(len(folders)))
    assert_equal(program["study_in"](folders[-1]), expected)
    for folder in folders:
        assert_equal(Study.load(folder), expected)
    assert not list(tmp_path.rglob("*.tmp*"))
