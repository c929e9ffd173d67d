"""Commands under ``torchrun``: every analysis gives what one process gives."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from visprism import Result
from visprism.cli import main

MODEL = "vit_pico_patch4_32?img_size=16&depth=1"
WITHOUT_FIGURES = str(Path(__file__).with_name("run_without_figures.py"))
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node")


def command(folder):
    """All analyses of 20 images in batches of 16: two batches."""
    data = ("--data", "shapes?size=16", "--limit", "20")
    return ("examine", MODEL, *data, "--minutes", "none", "--out", str(folder))


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("visprism.study.files.write_files", lambda *_, **__: None)
        assert main(command(folder)) == 0
    return folder / "results"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("processes", "program"),
    [(2, ("-m", "visprism")), (3, (WITHOUT_FIGURES,))],  # 3: more than there are batches
)
def test_every_analysis_gives_what_one_process_gives(alone, tmp_path, processes, program):
    answer = subprocess.run(
        [*TORCHRUN, str(processes), *program, *command(tmp_path)],
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert answer.returncode == 0, answer.stderr
    expected = {without_key(path): Result.load(path) for path in alone.glob("*.npz")}
    results = {without_key(path): Result.load(path) for path in tmp_path.glob("results/*.npz")}
    assert results.keys() == expected.keys()
    assert (tmp_path / "report.html").exists() == (program[0] == "-m")
    for name, result in results.items():
        others = expected[name].columns()
        for column, values in result.columns().items():
            if values.dtype.kind != "f":
                np.testing.assert_array_equal(values, others[column], err_msg=name)
                continue
            # In single precision, where batches are of other sizes.
            scale = np.nanmax(np.abs(others[column]), initial=0.0, where=~np.isnan(values))
            np.testing.assert_allclose(
                values, others[column], rtol=1e-3, atol=1e-3 * scale, err_msg=f"{name} {column}"
            )


def without_key(path):
    """The name of a file without its key.

    The key covers the code of the model, which the checks of types change in this process.
    """
    return path.stem.rpartition("-")[0]
