"""Folders without rights: one sentence, and nothing is written."""

import os
import re
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from visprism import InputError, examine

NOBODY = 65534

pytestmark = pytest.mark.skipif(
    not hasattr(os, "seteuid"), reason="this system has no permissions of users"
)


@contextmanager
def without_privileges():
    """Let the body run as a user without rights."""
    before = os.geteuid()
    os.seteuid(NOBODY if before == 0 else before)
    try:
        yield
    finally:
        os.seteuid(before)


@pytest.mark.parametrize("mode", [0o555, 0o000], ids=["locked", "hidden"])
def test_a_folder_without_rights_is_refused_by_everything_that_writes(
    mode, net, loader, tmp_path
):
    folder = Path(tempfile.mkdtemp())
    folder.chmod(mode)
    study = examine(net(), loader, analyses=["anatomy"])
    study.write_files(tmp_path)  # imports what is needed while files can be read
    sentence = re.escape(f"{folder}/out") + r".*\(Permission denied\)"
    for write in (
        lambda out: examine(net(), loader, analyses=["anatomy"], out=out),
        study.save,
        study.write_files,
    ):
        with (
            without_privileges(),
            pytest.raises(InputError, match=f"out must be a folder that .*{sentence}"),
        ):
            write(folder / "out")
    refused = pytest.raises(OSError, match=r"x\.html could not be written \(Permission denied")
    with without_privileges(), refused:
        study.to_html(folder / "x.html")
    folder.chmod(0o755)
    folder.rmdir()  # which is empty
