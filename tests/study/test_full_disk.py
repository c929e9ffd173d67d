"""A disk that is full, or anything else that cannot be written, at each write in turn."""

import errno
from pathlib import Path
from types import SimpleNamespace

import pytest

from visprism import Study, examine
from visprism.core.errors import OutputError


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
