"""What the README and examples/ show runs as it stands there."""

import re
import runpy
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

PROJECT = Path(__file__).parent.parent
README = (PROJECT / "README.md").read_text(encoding="utf-8")
FENCE = re.compile(r"```python\n(.*?)```", flags=re.DOTALL)
BLOCKS = FENCE.findall(README)
PAGES = [
    PROJECT / "docs" / name for name in ("harmonize.md", "analyses/attention_as_convolution.md")
]
EXAMPLES = sorted((PROJECT / "examples").glob("*.py"))


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Files that an example writes go to a folder of the test's own."""
    monkeypatch.chdir(tmp_path)
    yield
    plt.close("all")


def test_there_are_ten_lines_of_python():
    lines = [line for block in BLOCKS for line in block.splitlines() if line]
    assert 0 < len(lines) <= 10


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_the_readme_runs(block, capsys):
    exec(compile(block, "README.md", "exec"), {})
    assert Path("spectrum.png").stat().st_size > 10_000
    assert "blocks" in capsys.readouterr().out


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_page_shows_runs(page):
    (block,) = FENCE.findall(page.read_text(encoding="utf-8"))
    names = {}
    exec(compile(block, page.name, "exec"), names)
    made = names.get("alternet", names.get("patches"))
    assert len(made(names["images"])) == len(names["images"])


def test_the_readme_names_commands_that_exist():
    from visprism.cli.arguments import parser

    known = set(re.findall(r"^    ([\w-]+)  ", parser().format_help(), flags=re.MULTILINE))
    named = set(re.findall(r"visprism ([\w-]+) ", README.replace("`", " "))) - {"in"}
    assert named & known == known
    assert all(name in known for name in re.findall(r"^visprism (\w+)", README, re.MULTILINE))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(path, capsys):
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out
