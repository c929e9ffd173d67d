"""Several processes give the answer of one (src/visprism/passes/features.py)."""

import runpy
from pathlib import Path

import numpy as np
import pytest
from two_processes import in_two_processes

from visprism import Result, assert_results_equal
from visprism.core.processes import world_size

SCRIPT = Path(__file__).with_name("observe_in_processes.py")


@pytest.mark.slow
def test_two_processes_give_the_answer_of_one(tmp_path):
    script = runpy.run_path(str(SCRIPT))
    alone = script["observed"]()
    together = in_two_processes(SCRIPT, tmp_path, script["observed"])
    assert world_size() == 1  # the processes have parted again

    for n, expected, results in zip(script["IMAGES"], alone, together, strict=True):
        assert len(results) == 2
        for name, ours in results.items():
            assert_results_equal(expected[name], ours)
            theirs = Result.load(tmp_path / f"{name}-{n}.npz")
            for column, values in ours.columns().items():  # bit for bit
                np.testing.assert_array_equal(values, theirs.columns()[column])
            assert (ours.provenance.images, ours.provenance.processes) == (n, 2)
            assert ours.provenance == theirs.provenance
