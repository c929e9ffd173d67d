"""A disk that is full, or anything else that cannot be written, at each write in turn."""

import errno
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from internals import OutputError

from visprism import Study, examine


@pytest.fixture
def disk(monkeypatch):
    """Lets `free` files be begun, counts them, and refuses all others."""
    disk, touch = SimpleNamespace(begun=0, free=10**6), Path.touch

    def touched(path, *arguments, **options):
        if path.suffix in (".npz", ".csv", ".json"):
            if disk.begun >= disk.free:
                raise OSError(errno.ENOSPC, "No space left on device", str(path))
            disk.begun += 1
        touch(path, *arguments, **options)

    monkeypatch.setattr(Path, "touch", touched)
    return disk


def content(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_study_that_finds_the_disk_full_at_any_write_resumes_to_the_same_results(
    net, loader, brightness, disk, tmp_path
):
    models = {"a": net(0), "b": net(1)}
    expected = examine(models, loader, analyses=[brightness], out=tmp_path / "undisturbed")
    writes = disk.begun
    assert writes > 5  # a table of two kinds for each model, and the index
    for free in range(writes):
        out = tmp_path / str(free)
        disk.begun, disk.free = 0, free
        sentence = rf"{out}.* could not be written \(No space left on device\)\. Free some"
        with pytest.raises(OutputError, match=sentence):
            examine(models, loader, analyses=[brightness], out=out)
        disk.free = 10**6
        assert not list(out.rglob("*.tmp*"))
        if (out / "study.json").exists():
            for entry in Study.load(out).entries:
                assert entry.results == expected.model(*entry.models).results("brightness")
        resumed = examine(models, loader, analyses=[brightness], out=out)
        assert [e.results for e in resumed.entries] == [e.results for e in expected.entries]


def test_a_save_leaves_the_earlier_study_wherever_the_disk_is_full(
    net, loader, brightness, disk, tmp_path
):
    study = examine({"a": net(0), "b": net(1)}, loader, analyses=[brightness])
    earlier = examine({"a": net(2)}, loader, analyses=[brightness])
    earlier.save(tmp_path)
    before, disk.begun = content(tmp_path), 0
    study.save(tmp_path / "counted")
    writes = disk.begun
    shutil.rmtree(tmp_path / "counted")
    for free in range(writes):
        disk.begun, disk.free = 0, free
        with pytest.raises(OutputError, match=rf"{tmp_path} could not be written \(No space"):
            study.save(tmp_path)
        assert content(tmp_path) == before
    disk.free = 10**6
    study.save(tmp_path)
    assert Study.load(tmp_path).entries == study.entries
