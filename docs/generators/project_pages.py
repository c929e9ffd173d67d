"""Pages of the repository's root that the site shows too, and pages that no list names."""

import re
from pathlib import Path

from generators.links import ROOT, within_site

LISTS = ("index", "background", "references")
FILES = {"changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md"}


def pages(folder: Path) -> dict[str, str]:
    """Their texts, with links that lead to pages of the site."""
    return {
        name: within_site((ROOT / file).read_text("utf-8"), f"../{file}", folder.parent)
        for name, file in FILES.items()
    }


def with_further_pages(docname: str, text: str, source: Path) -> str:
    """The list of the reference with the pages of ``docs/`` that stand in no other list."""
    if docname != "references":
        return text
    lists = "".join((source / f"{name}.md").read_text("utf-8") for name in LISTS)
    named = set(re.findall(r"^(?:\w+ <)?(\w+)>?$", lists, flags=re.MULTILINE)) | set(LISTS)
    further = sorted(path.stem for path in source.glob("*.md") if path.stem not in named)
    return text.replace(
        "\ngenerated/changelog", "".join(f"\n{n}" for n in further) + "\ngenerated/changelog"
    )
