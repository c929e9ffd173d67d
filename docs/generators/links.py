"""Relative links that work on GitHub, made to lead to pages of the site."""

import os
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?!\w+:|#)([^)\s#]+)(#[^)\s]*)?\)")
_PAGES = {
    "README.md": "/index.md",
    "CHANGELOG.md": "/generated/changelog.md",
    "CONTRIBUTING.md": "/generated/contributing.md",
    "docs/analyses": "/generated/gallery.md",
    "examples": "/generated/notebooks/index.rst",
}


def within_site(text: str, docname: str, source: Path) -> str:
    """The text with links to files of the repository replaced by links to pages.

    A link to a file that has no page becomes the file's name in the repository.
    """

    def link(match: re.Match[str]) -> str:
        label, target, anchor = match[1], match[2], match[3] or ""
        if target.startswith("/"):
            return match[0]
        path = Path(os.path.normpath((source / docname).parent / target))
        if path.is_relative_to(source) and path.suffix in {".md", ".rst"}:
            return f"[{label}](/{path.relative_to(source)}{anchor})"
        if not path.is_relative_to(ROOT):
            return match[0]
        return _outside(label, path.relative_to(ROOT), anchor)

    return _LINK.sub(link, text)


def _outside(label: str, path: Path, anchor: str) -> str:
    name = path.as_posix()
    if name in _PAGES:
        return f"[{label}]({_PAGES[name]}{anchor})"
    if path.parent.name == "examples" and path.suffix == ".py":
        return f"[{label}](/generated/notebooks/{path.stem}.rst)"
    if path.parts[:2] == ("benchmarks", "results"):
        return f"[{label}](/generated/benchmarks.md)"
    return f"{label} (`{name}`)" if name not in label else label
