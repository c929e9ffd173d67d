"""Several processes measure what one does (src/visprism/loss/)."""

import runpy
from pathlib import Path

import numpy as np
import pytest
from two_processes import in_two_processes

from visprism import Result

SCRIPT = Path(__file__).with_name("in_processes.py")


@pytest.mark.slow
def test_two_processes_find_the_same_of_three_batches_and_of_one(tmp_path):
    measured = runpy.run_path(str(SCRIPT))["measured"]
    alone = measured()
    ours = in_two_processes(SCRIPT, tmp_path, measured)
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
