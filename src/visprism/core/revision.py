"""The git revision of the code, where visprism runs from a checkout."""

import subprocess
from functools import cache
from pathlib import Path

_ROOT = Path(__file__).parents[3]  # of a checkout
_SECONDS = 10


@cache
def revision(root: Path = _ROOT) -> str:
    """The commit of a checkout, and whether its files differ; "" without a checkout or git.

    Args:
        root: folder of the checkout; that of this package by default.
    """
    if not (root / ".git").exists():  # a file in a work tree
        return ""
    commit = _git(root, "rev-parse", "--short=12", "HEAD")
    if not commit:
        return ""
    changed = _git(root, "status", "--porcelain", "--untracked-files=no")
    return f"{commit}, with changes that are not committed" if changed else commit


def _git(root: Path, *arguments: str) -> str:
    """What git prints; "" if it fails."""
    command = ["git", "-C", str(root), *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
