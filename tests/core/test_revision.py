"""Laws of the git revision: that of a checkout, with a remark if files differ."""

import shutil
import subprocess

import pytest

from visprism.core.provenance import revision


@pytest.fixture
def checkout(tmp_path):
    if shutil.which("git") is None:
        pytest.skip("needs git")

    def git(*arguments):
        name = ["-c", "user.name=a", "-c", "user.email=a@b"]
        command = ["git", "-C", str(tmp_path), *name, *arguments]
        return subprocess.check_output(command, text=True).strip()

    git("init", "-q")
    (tmp_path / "code.py").write_text("1")
    git("add", ".")
    git("commit", "-qm", "code")
    yield tmp_path, git("rev-parse", "HEAD")
    revision.cache_clear()


def test_the_revision_is_the_commit_of_the_checkout_with_a_remark_if_files_differ(checkout):
    root, commit = checkout
    (root / "notes.txt").write_text("2")
    assert revision(root) == commit[:12]
    revision.cache_clear()
    (root / "code.py").write_text("2")
    assert revision(root) == f"{commit[:12]}, with changes that are not committed"


def test_an_installed_package_has_no_revision(tmp_path):
    assert revision(tmp_path) == ""
    (tmp_path / ".git").mkdir()  # of a broken checkout
    assert revision(tmp_path / ".git") == ""
