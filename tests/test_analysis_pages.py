"""The Python of every page about an analysis runs as it stands there, in an empty folder."""

import re
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

PROJECT = Path(__file__).parent.parent
PAGES = sorted((PROJECT / "docs" / "analyses").glob("*.md"))
FENCE = re.compile(r"```python\n(.*?)```", flags=re.DOTALL)
OF_MANY_PASSES = {
    "ablation",
    "adversarial",
    "density",
    "hessian",
    "hessian-by-block",
    "landscape",
    "sharpness",
    "stability",
    "training-curvature",
    "trajectory",
}


def test_every_page_shows_python():
    assert len(PAGES) > 40
    assert all(len(FENCE.findall(page.read_text("utf-8"))) == 1 for page in PAGES)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(p, marks=pytest.mark.slow if p.stem in OF_MANY_PASSES else (), id=p.stem)
        for p in PAGES
    ],
)
def test_the_python_of_a_page_runs(page, tmp_path, monkeypatch):
    (block,) = FENCE.findall(page.read_text("utf-8"))
    monkeypatch.chdir(tmp_path)
    try:
        exec(compile(block, page.name, "exec"), {})
    finally:
        plt.close("all")
