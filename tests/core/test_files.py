"""Laws of files: a reader sees the old ones or the new ones, whatever goes wrong."""

import errno
import os
import re
import resource
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from visprism import InputError
from visprism.core.errors import OutputError
from visprism.core.files import atomic_write, output_folder, remove_leftovers, write_text

OLD = {"page.html": "old", "figures/a.png": "old a", "figures/b.png": "old b", "mine": "user's"}
NEW = {"page.html": "new", "figures/a.png": "new a", "table.md": "new", "deep/x/y.npz": "new y"}
BOTH = {**NEW, "mine": "user's"}  # figures/b.png is of the old study


def write(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def content(folder):
    """Every file with its text, hidden ones too."""
    paths = [p for p in Path(folder).rglob("*") if p.is_file()]
    return {p.relative_to(folder).as_posix(): p.read_text() for p in paths}


def replace_all(folder, files=NEW):
    with output_folder(folder, replaced=["figures"], last="page.html") as scratch:
        write(scratch, files)


def failing_at(monkeypatch, number, error):
    """Let the n-th change of the file system by `output_folder` fail, and only that one."""
    calls = []

    def wrapped(change):
        def perform(*arguments, **options):
            calls.append(change)
            if len(calls) == number:
                raise error
            return change(*arguments, **options)

        return perform

    for owner, name in ((Path, "rename"), (Path, "replace"), (shutil, "copy2")):
        monkeypatch.setattr(owner, name, wrapped(getattr(owner, name)))
    return calls


def test_a_replaced_folder_holds_the_new_files_only_and_others_stay(tmp_path):
    write(tmp_path, OLD)
    replace_all(tmp_path)
    assert content(tmp_path) == BOTH


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), OutputError),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
    ids=["full disk", "Ctrl-C"],
)
def test_an_error_between_any_two_moves_leaves_the_old_files(
    error, raised, tmp_path, monkeypatch
):
    moves = 1 + 2 + 3  # a copy of the old page; the old and the new figures; three files
    for number in range(1, moves + 2):
        folder = tmp_path / str(number)
        write(folder, OLD)
        with monkeypatch.context() as patched:
            calls = failing_at(patched, number, error)
            if number > moves:
                replace_all(folder)
            else:
                with pytest.raises(raised, match=r"could not be written|^$"):
                    replace_all(folder)
        assert len(calls) >= min(number, moves)
        assert content(folder) == (BOTH if number > moves else OLD)
        assert not list(folder.glob(".visprism*"))


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_ctrl_c_while_temporary_files_are_removed_leaves_none(number, tmp_path, monkeypatch):
    removals = []

    def interrupted(remove):
        def call(*arguments, **options):
            removals.append(remove)
            if len(removals) == number:
                raise KeyboardInterrupt
            return remove(*arguments, **options)

        return call

    with monkeypatch.context() as patched:
        for name in ("unlink", "rmdir"):
            patched.setattr(os, name, interrupted(getattr(os, name)))
        write(tmp_path, OLD)
        with pytest.raises(KeyboardInterrupt):
            replace_all(tmp_path)
    assert content(tmp_path) == BOTH
    assert not list(tmp_path.glob(".visprism*"))


def test_an_error_before_the_first_file_of_a_new_folder_leaves_none(tmp_path, monkeypatch):
    failing_at(monkeypatch, 3, OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(OutputError, match=r"new could not be written \(No space left on dev"):
        replace_all(tmp_path / "a" / "new")
    assert list(tmp_path.iterdir()) == []


KILLED = """
import os, shutil, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_files import replace_all

left = [int(sys.argv[2])]

def wrapped(change):
    def perform(*arguments, **options):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), 9)
        return change(*arguments, **options)
    return perform

Path.rename, Path.replace = wrapped(Path.rename), wrapped(Path.replace)
shutil.copy2 = wrapped(shutil.copy2)
replace_all(Path(sys.argv[1]))
"""


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 6])
def test_a_process_that_is_killed_leaves_no_mixture_of_figures(number, tmp_path):
    """Nothing can be moved back then; the page is old until all that it refers to is new."""
    write(tmp_path, OLD)
    script = KILLED.format(tests=str(Path(__file__).parent))
    command = [sys.executable, "-c", script, str(tmp_path), str(number)]
    assert subprocess.run(command, check=False).returncode == -9
    left = {name: text for name, text in content(tmp_path).items() if name[0] != "."}
    figures = {name: text for name, text in left.items() if name.startswith("figures/")}
    before, after = ({n: t for n, t in s.items() if n[:2] == "fi"} for s in (OLD, NEW))
    assert figures in ([before, {}] if number <= 3 else [after])
    assert left["page.html"] == "old"
    replace_all(tmp_path)  # the same call goes on
    assert {n: t for n, t in content(tmp_path).items() if n[0] != "."} == BOTH


def test_an_error_of_a_file_that_the_body_reads_is_not_about_writing(tmp_path):
    with (
        pytest.raises(FileNotFoundError, match=r"No such file or directory: '.*data'"),
        output_folder(tmp_path / "out"),
    ):
        (tmp_path / "data").read_text()
    assert list(tmp_path.iterdir()) == []


def test_a_file_where_the_folder_should_be_is_refused(tmp_path):
    write_text(tmp_path / "file", "x")
    with (
        pytest.raises(InputError, match=r"out must be a folder that .* \(Not a directory\)"),
        output_folder(tmp_path / "file" / "out"),
    ):
        raise AssertionError("the body must not run")


@contextmanager
def tiny_disk():
    """The system refuses files of more than 4 kB, as a disk that is nearly full does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_file_that_does_not_fit_is_named_and_the_old_one_stays(tmp_path):
    path = tmp_path / "page.html"
    write_text(path, "old")
    sentence = r"page\.html could not be written \(File too large\)\. Free some space and try"
    with tiny_disk(), pytest.raises(OutputError, match=sentence) as caught:
        write_text(path, "new" * 5000)
    assert caught.value.errno == errno.EFBIG
    assert content(tmp_path) == {"page.html": "old"}


def test_a_folder_whose_files_do_not_fit_stays_as_it_was(tmp_path):
    write(tmp_path, OLD)
    large = {**NEW, "page.html": "new" * 5000}
    sentence = rf"^{tmp_path} could not be written \(File too lar"
    with tiny_disk(), pytest.raises(OutputError, match=sentence):
        replace_all(tmp_path, large)
    assert content(tmp_path) == OLD


def test_a_folder_that_vanishes_meanwhile_is_named(tmp_path):
    path = tmp_path / "out" / "a.txt"
    path.parent.mkdir()
    with (
        pytest.raises(OutputError, match=r"a\.txt could not be written \(No such file or dir"),
        atomic_write(path),
    ):
        shutil.rmtree(path.parent)


def test_what_a_killed_process_left_is_removed_and_what_a_running_one_writes_stays(tmp_path):
    program = """
import os, signal, sys
from pathlib import Path
from visprism.core.files import atomic_write, output_folder
folder = Path(sys.argv[1])
(folder / "deep").mkdir()
with atomic_write(folder / "deep" / "a.npz") as scratch, output_folder(folder) as pages:
    scratch.write_text("half")
    (pages / "page.html").write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    (tmp_path / ".mine.tmp").write_text("a hidden file of the user")
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    assert done.returncode == -9
    left = [p.name for p in tmp_path.rglob(".*") if ".tmp" in p.name]
    assert len(left) == 3
    with atomic_write(tmp_path / "b.npz") as scratch:
        elsewhere = scratch.with_name(re.sub(r"[^.]+-(\d+)", r"elsewhere-\1", scratch.name))
        elsewhere.write_text("of another machine")
        remove_leftovers(tmp_path)
        assert scratch.exists()
    assert {p.name for p in tmp_path.rglob("*")} == {
        ".mine.tmp",
        "b.npz",
        "deep",
        elsewhere.name,
    }
