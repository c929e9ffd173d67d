"""A disk that is full: one sentence with the path and the reason, and exit code 2."""

import errno
import resource
from pathlib import Path

import pytest

from visprism.cli import main

pytestmark = pytest.mark.usefixtures("plugin")


@pytest.fixture
def largest_file(monkeypatch):
    """Limit the size of any file that the process writes; the system then refuses more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limit(size):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))

    yield limit
    monkeypatch.undo()
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def files_of(folder):
    """Every file but the index, which says how long the last run took."""
    files = [p for p in folder.rglob("*") if p.is_file() and p.name != "study.json"]
    return {p: p.read_bytes() for p in files}


def last_line(capsys):
    printed = capsys.readouterr()
    assert "Traceback" not in printed.err
    return printed.err.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("size", "file", "outcome"),
    [
        (0, "{out}/study.yaml", "no result was complete"),
        (4096, "{npz}", "no result was complete"),
        (12_000, "{out}", "2 results are stored in {out}; the same command resumes"),
    ],
    ids=["nothing fits", "no table fits", "no figure fits"],
)
def test_a_full_disk_is_one_sentence_and_the_same_command_goes_on(
    size, file, outcome, study_command, studied, tmp_path, capsys, largest_file
):
    out = tmp_path / "out"
    (npz,) = (out / "results" / p.name for p in studied.glob("results/resnet20.shapes-*.npz"))
    largest_file(size)
    code = main([*study_command, str(out)])
    largest_file(resource.RLIM_INFINITY)
    assert code == 2
    assert last_line(capsys) == (
        f"visprism: {file.format(out=out, npz=npz)} could not be written (File too large). "
        f"Free some space and try again. So far, {outcome.format(out=out)}."
    )
    assert not [p for p in out.rglob("*") if ".tmp" in p.name or p.name.startswith(".")]
    assert not (out / "report.html").exists()
    assert main([*study_command, str(out)]) == 0
    for name in ("results.json", "figures/sparsity.png"):
        assert (out / name).exists()
    tables = [next(f.glob("results/resnet20.shapes-*.csv")) for f in (out, studied)]
    assert tables[0].read_bytes() == tables[1].read_bytes()


def test_a_disk_that_fills_up_while_files_are_written_leaves_the_old_ones(
    study_command, studied, capsys, monkeypatch
):
    def full(self, data):
        raise OSError(errno.ENOSPC, "No space left on device", str(self))

    before = files_of(studied)
    monkeypatch.setattr(Path, "write_bytes", full)
    assert main([*study_command, str(studied)]) == 2
    assert f"{studied} could not be written (No space left on device)" in last_line(capsys)
    assert files_of(studied) == before


def test_the_anatomy_of_a_model_is_written_as_a_whole(tmp_path, capsys, largest_file):
    largest_file(8_000)
    code = main(["anatomy", "resnet20", "--out", str(tmp_path / "out")])
    largest_file(resource.RLIM_INFINITY)
    assert code == 2
    assert f"{tmp_path}/out could not be written (File too large)" in last_line(capsys)
    assert not (tmp_path / "out").exists()
