"""Pages of the repository's root that the site shows too."""

from pathlib import Path

from generators.links import ROOT, within_site

FILES = {"changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md"}


def pages(folder: Path) -> dict[str, str]:
    """Their texts, with links that lead to pages of the site."""
    return {
        name: within_site((ROOT / file).read_text("utf-8"), f"../{file}", folder.parent)
        for name, file in FILES.items()
    }
