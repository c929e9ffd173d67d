"""What the README and the pages show runs as it stands there."""

import re
import shlex
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

from visprism.cli.parser import commands, parse

PROJECT = Path(__file__).parent.parent
README = (PROJECT / "README.md").read_text(encoding="utf-8")
FENCE = re.compile(r"```python\n(.*?)```", flags=re.DOTALL)
BLOCKS = FENCE.findall(README)
PAGES = [
    PROJECT / "docs" / name for name in ("harmonize.md", "analyses/attention-as-convolution.md")
]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Files that an example writes go to a temporary folder."""
    monkeypatch.chdir(tmp_path)
    yield
    plt.close("all")


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_the_readme_runs(block, capsys):
    exec(compile(block, "README.md", "exec"), {})
    assert Path("spectrum.png").stat().st_size > 10_000
    assert "ResNet-20" in Path("report.html").read_text("utf-8")
    assert "ViT" in capsys.readouterr().out


def test_training_runs():
    page = PROJECT / "docs" / "training.md"
    (block,) = FENCE.findall(page.read_text(encoding="utf-8"))
    exec(compile(block, page.name, "exec"), {})
    assert Path("run/model.safetensors").is_file()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_page_shows_runs(page):
    (block,) = FENCE.findall(page.read_text(encoding="utf-8"))
    names = {}
    exec(compile(block, page.name, "exec"), names)
    made = names.get("alternet", names.get("patches"))
    assert len(made(names["images"])) == len(names["images"])


def test_the_page_of_commands_lists_every_one_with_its_help():
    page = (PROJECT / "docs" / "command_line.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `visprism ([\w-]+)[^|]*` \| (.*) \|$", page, re.MULTILINE)
    available = {name: command.help for name, command in commands().items()}
    assert dict(rows) == {n: h for n, h in available.items() if n != "sparsity"}
    assert len(rows) == len(dict(rows))


# The site.

HOW_TO = [PROJECT / "docs" / "tutorial.md", *sorted((PROJECT / "docs" / "howto").glob("*.md"))]
OF_ANALYSES = sorted((PROJECT / "docs" / "analyses").glob("*.md"))
SHELL = re.compile(r"^```sh\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"`(visprism [^`\n]+ --data [^`\n]+)`")
COMMANDS = [
    (page.stem, shlex.split(line, comments=True)[1:])
    for page in [PROJECT / "README.md", *HOW_TO, *OF_ANALYSES]
    for text in [page.read_text("utf-8")]
    for block in [*SHELL.findall(text), *INLINE.findall(text)]
    for line in block.replace("\\\n", " ").splitlines()
    if line.startswith("visprism ") and "..." not in line
]


@pytest.mark.slow
@pytest.mark.parametrize("page", HOW_TO, ids=lambda page: page.stem)
def test_the_python_of_a_how_to_page_runs_from_top_to_bottom(page):
    names = {}
    for block in FENCE.findall(page.read_text("utf-8")):
        exec(compile(block, page.name, "exec"), names)


@pytest.mark.parametrize(
    "words", [words for _, words in COMMANDS], ids=[f"{p}-{w[0]}" for p, w in COMMANDS]
)
def test_a_command_of_a_page_is_accepted_by_the_parser(words):
    command, flags = parse(words)
    assert command
    assert flags


def test_pages_show_commands():
    assert len(COMMANDS) > 10
