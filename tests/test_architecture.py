"""The layers of pyproject.toml: a part imports from below, never from above or beside."""

import ast
import re
import tomllib
from graphlib import TopologicalSorter
from importlib import import_module
from inspect import ismodule
from pathlib import Path
from statistics import median

import visprism

PACKAGE = Path(visprism.__file__).parent
PROJECT = PACKAGE.parent.parent
CONTRACTS = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["importlinter"]
LAYERS = [layer.split(" | ") for layer in CONTRACTS["contracts"][0]["layers"]]  # top first


def test_the_picture_in_the_docs_shows_these_layers():
    text = (PROJECT / "docs" / "architecture.md").read_text(encoding="utf-8")
    blocks = re.findall(r"(?:^    .+\n)+", text, flags=re.MULTILINE)
    pictures = [[line.strip().split(" | ") for line in block.splitlines()] for block in blocks]
    assert LAYERS in pictures


def imported(path):
    """The files of the package that a file imports anywhere, also inside of functions."""
    files = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            places = (PACKAGE.parent.joinpath(*name.split(".")) for name in names)
            files |= {place.with_suffix(".py") for place in places}
    return {file for file in files if file.is_file()}


def test_files_do_not_import_each_other_in_circles():
    TopologicalSorter({path: imported(path) for path in PACKAGE.rglob("*.py")}).prepare()


def test_files_that_docstrings_and_comments_name_exist():
    """Also in the tests: a file that is renamed is renamed in words, too."""
    stale = [
        f"{path.relative_to(PROJECT)}: {name}"
        for folder in ("src", "tests", "benchmarks", "experiments", "examples")
        for path in (PROJECT / folder).rglob("*.py")
        for name in re.findall(
            r"(?<![\w/.-])(?:src|tests|docs|benchmarks|experiments|examples)/[\w/.-]+\.(?:py|md)",
            path.read_text("utf-8"),
        )
        if not (PROJECT / name).is_file()
    ]
    assert not stale, "\n".join(stale)


def test_analyses_import_few_names():
    """So that a reader of one meets at most 15 names of visprism beside the kit."""
    counts = {}
    for path in (PACKAGE / "analyses").glob("*/*.py"):
        tree = ast.parse(path.read_text("utf-8"))
        imported = {
            f"{node.module}.{name.name}"
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("visprism")
            for name in node.names
        }
        if path.name != "__init__.py":
            counts[path.stem] = len(imported)
    assert {stem: count for stem, count in counts.items() if count > 15} == {}
    assert median(counts.values()) <= 10


def test_the_kit_is_documented():
    kit = import_module("visprism.kit")
    names = {
        name for name, value in vars(kit).items() if name[0] != "_" and not ismodule(value)
    }
    assert names == set(re.findall(r"`(\w+)`", kit.__doc__))
