"""Laws of the built package: reproducible, complete without the repository, typed."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]
EXAMPLE = """
import numpy as np
import torch
from torch import nn

import visprism as vp

model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2)).eval()
batches = [(torch.zeros(2, 3, 8, 8), torch.tensor([0, 1]))]
study: vp.Study = vp.examine({"mine": model}, batches, analyses=["fourier"], minutes=None)
lines: list[str] = list(study.lines())
loaded: vp.LoadedModel = vp.load_model("resnet20.shapes", seed=1)
network: nn.Module = loaded.model
blocks: vp.Anatomy = vp.dissect(network, torch.zeros(2, 3, 32, 32))
names: list[str] = [block.name for block in blocks]
objective = vp.Objective(network, [(torch.zeros(2, 3, 32, 32), torch.tensor([0, 1]))])
eigenvalues: np.ndarray = vp.top_eigenvalues(objective, k=2).value
result: vp.Result = study["mine"]["fourier"]
vp.load_model(3)  # a mistake
"""


def uv(*words, folder):
    program = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
    if not Path(program).is_file():
        pytest.skip("uv is not installed")
    environment = {
        k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")
    }
    return subprocess.run(
        [program, *words],
        cwd=folder,
        env=environment | {"SOURCE_DATE_EPOCH": "1700000000"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A folder with the wheel and the source distribution."""
    folder = tmp_path_factory.mktemp("built")
    done = uv("build", "--out-dir", str(folder), str(PROJECT), folder=folder)
    if "No solution found" in done.stderr or "Failed to fetch" in done.stderr:
        pytest.skip("the build backend cannot be downloaded")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_the_wheel_has_every_file_of_the_package_and_no_other(built):
    (wheel,) = built.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    packaged = {n for n in names if n.startswith("visprism/")}
    tree = {
        str(path.relative_to(PROJECT / "src"))
        for path in (PROJECT / "src" / "visprism").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert packaged == tree
    assert all(n.startswith(("visprism/", "visprism-")) for n in names)


@pytest.mark.slow
def test_the_source_distribution_builds_the_same_wheel(built, tmp_path):
    (source,) = built.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        archive.extractall(tmp_path, filter="data")
    (tree,) = tmp_path.iterdir()
    done = uv("build", "--wheel", "--out-dir", str(tmp_path / "dist"), str(tree), folder=tree)
    assert done.returncode == 0, done.stderr
    (wheel,), (expected,) = (tmp_path / "dist").glob("*.whl"), built.glob("*.whl")
    assert wheel.read_bytes() == expected.read_bytes()


@pytest.mark.slow
def test_the_wheel_alone_runs_the_main_job(built, tmp_path):
    """Installed without the repository; its dependencies are those of this environment."""
    (wheel,) = built.glob("*.whl")
    place = tmp_path / "site"
    done = uv(
        "pip", "install", "--no-deps", "--target", str(place), str(wheel), folder=tmp_path
    )
    assert done.returncode == 0, done.stderr
    words = "examine resnet20.shapes --data shapes --limit 8 --analyses fourier --out study"
    code = "import sys, visprism.cli; print(visprism.__file__); sys.exit(visprism.cli.main())"
    done = subprocess.run(
        [sys.executable, "-c", code, *words.split()],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(place)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(place))
    assert (tmp_path / "study" / "report.html").is_file()
    assert (tmp_path / "study" / "study.yaml").is_file()


@pytest.mark.slow
def test_a_users_file_has_the_types_that_it_states(tmp_path):
    """A checker finds the one mistake, and no other."""
    (tmp_path / "mine.py").write_text(EXAMPLE)
    program = str(Path(sys.executable).with_name("pyrefly"))
    words = f"check --preset default --python-interpreter-path {sys.executable} mine.py".split()
    done = subprocess.run(
        [program, *words, "--output-format", "min-text"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    errors = [line for line in done.stdout.splitlines() if "ERROR" in line]
    mistake = EXAMPLE.splitlines().index("vp.load_model(3)  # a mistake") + 1
    assert len(errors) == 1, done.stdout
    assert f":{mistake}:" in errors[0]
