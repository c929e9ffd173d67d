"""Laws of files: a reader sees the old ones or the new ones, whatever goes wrong."""

from pathlib import Path

import pytest

from visprism.core.files import atomic_write, output_folder, write_text

OLD = {"page.html": "old", "figures/a.png": "old a", "figures/b.png": "old b", "mine": "user's"}
NEW = {"page.html": "new", "figures/a.png": "new a", "table.md": "new", "deep/x/y.npz": "new y"}
BOTH = {**OLD, **NEW}


def write(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def content(folder):
    """Every file with its text, hidden ones too."""
    paths = [p for p in Path(folder).rglob("*") if p.is_file()]
    return {p.relative_to(folder).as_posix(): p.read_text() for p in paths}


def replace_all(folder, files=NEW):
    with output_folder(folder, last="page.html") as scratch:
        write(scratch, files)


def test_new_files_replace_old_ones_and_others_stay(tmp_path):
    write(tmp_path, OLD)
    replace_all(tmp_path)
    assert content(tmp_path) == BOTH


def interrupted(folder):
    with output_folder(folder) as scratch:
        write(scratch, NEW)
        raise KeyboardInterrupt


def test_a_failure_of_the_body_leaves_the_old_files_and_no_new_folder(tmp_path):
    write(tmp_path, OLD)
    for folder in (tmp_path, tmp_path / "a" / "new"):
        with pytest.raises(KeyboardInterrupt):
            interrupted(folder)
    assert content(tmp_path) == OLD
    assert not (tmp_path / "a").exists()


def test_what_a_killed_process_left_is_replaced(tmp_path):
    write(tmp_path, {".b.npz.0.tmp.npz": "half", ".visprism.tmp/page.html": "half"})
    write_text(tmp_path / "b.npz", "new")
    replace_all(tmp_path)
    assert content(tmp_path) == {**NEW, "b.npz": "new"}


def test_what_is_written_has_the_mode_of_any_new_file(tmp_path):
    """Some writers, as that of safetensors, make files that only their owner may read."""
    plain = tmp_path / "plain"
    plain.touch()
    with atomic_write(tmp_path / "file") as scratch:
        scratch.unlink()
        scratch.touch(mode=0o600)
    assert (tmp_path / "file").stat().st_mode == plain.stat().st_mode
