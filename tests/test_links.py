"""Links between the pages of the repository lead to a file, and to a heading of it."""

import re
from pathlib import Path

import pytest

import visprism as vp

PROJECT = Path(__file__).parents[1]
PAGES = [
    *sorted(PROJECT.glob("*.md")),
    *sorted((PROJECT / "docs").glob("*.md")),
    *sorted((PROJECT / "docs").glob("[!_g]*/*.md")),
]
LINK = re.compile(r"\]\((?!\w+:)([^)\s#]*)(?:#([^)\s]+))?\)")


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub and MyST give to the headings of a page."""
    titles = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_links_lead_somewhere(page):
    broken = []
    for target, anchor in LINK.findall(page.read_text("utf-8")):
        path = (page.parent / target) if target else page
        if not path.exists() or (anchor and anchor not in anchors(path)):
            broken.append(f"{target}#{anchor}")
    assert not broken


def test_every_analysis_answers_a_question():
    page = (PROJECT / "docs" / "howto" / "which-analysis.md").read_text("utf-8")
    named = set(re.findall(r"\]\(\.\./analyses/([\w-]+)\.md\)", page))
    marked = set(re.findall(r"\]\(\.\./analyses/([\w-]+)\.md\)†", page))
    own = {n: a for n, a in vp.ANALYSES.items() if a.__module__.startswith("visprism.")}
    assert named == {*own}
    assert marked == {n for n in named if not own[n].default}
