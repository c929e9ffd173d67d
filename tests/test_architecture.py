"""The layers of pyproject.toml: a part imports from below, never from above or beside."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

import visprism
from visprism.cli.parser import command_parser, commands

PACKAGE = Path(visprism.__file__).parent
PROJECT = PACKAGE.parent.parent
CONTRACTS = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["importlinter"]
LAYERS = [layer.split(" | ") for layer in CONTRACTS["contracts"][0]["layers"]]  # top first
RANK = {part: -rank for rank, layer in enumerate(LAYERS) for part in layer}
MODULES = sorted(p.relative_to(PACKAGE) for p in PACKAGE.glob("*/**/*.py")) + sorted(
    p.relative_to(PACKAGE)
    for p in PACKAGE.glob("*.py")
    if p.stem not in ("__init__", "__main__")  # which is the command line's
)


def part_of(path):
    return path.parts[0].removesuffix(".py")


def imported_modules(path):
    """Full names of everything under ``visprism`` that the file imports, wherever it does."""
    nodes = list(ast.walk(ast.parse((PACKAGE / path).read_text(encoding="utf-8"))))
    froms = [n for n in nodes if isinstance(n, ast.ImportFrom)]
    assert not any(n.level for n in froms), f"{path}: imports are absolute"
    names = {f"{n.module}.{alias.name}" for n in froms for alias in n.names}
    names |= {a.name for n in nodes if isinstance(n, ast.Import) for a in n.names}
    return {name for name in names if name.startswith("visprism.")}


def imported_parts(path):
    return {name.split(".")[1] for name in imported_modules(path)}


def test_every_part_has_a_layer():
    assert {part_of(path) for path in MODULES} <= set(RANK)


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_imports_point_downwards(path):
    part = part_of(path)
    upward = {p for p in imported_parts(path) - {part} if RANK[p] >= RANK[part]}
    assert not upward, f"{path} must not import {upward}"


@pytest.mark.parametrize("part", ["anatomy", "loss", "passes", "drawing"])
def test_measurements_work_on_any_model_and_any_images(part):
    for path in (p for p in MODULES if part_of(p) == part):
        assert not imported_parts(path) & {"models", "images"}, path


def test_the_picture_in_the_docs_shows_these_layers():
    text = (PROJECT / "docs" / "architecture.md").read_text(encoding="utf-8")
    blocks = re.findall(r"(?:^    .+\n)+", text, flags=re.MULTILINE)
    pictures = [[line.strip().split(" | ") for line in block.splitlines()] for block in blocks]
    assert LAYERS in pictures


# Commands of the last version before the redesign.
FORMER = {
    *(
        "anatomy",
        "attack",
        "attention",
        "cka",
        "data",
        "demo",
        "density",
        "evaluate",
        "examine",
    ),
    *("fourier", "harmonize", "hessian", "landscape", "lesion", "models", "noise", "recipes"),
    *("receptive-field", "robustness", "shape-bias", "train", "trajectory", "variance"),
}


def rows_of_former_commands():
    """Quoted words of both columns of the table, and whether a row keeps its names."""
    text = (PROJECT / "docs" / "architecture.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"## What former commands became\n\n(.*?)\n\n", text, flags=re.DOTALL)
    cells = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
    words = [[re.findall(r"`([^`]+)`", cell) for cell in row] for row in cells]
    return [(*w, "the same name" in now) for w, (_, now) in zip(words, cells, strict=True)]


def test_every_former_command_is_in_the_table_once():
    former = [name for names, _, _ in rows_of_former_commands() for name in names]
    assert sorted(former) == sorted(FORMER)


def test_every_command_and_option_of_the_table_exists():
    for former, now, same in rows_of_former_commands():
        options = {word for word in now if word.startswith("--")}
        names = {word for word in now if word not in options} | (set(former) if same else set())
        assert names, former
        assert names <= set(commands()), former
        available = {name: command_parser(name).format_help() for name in sorted(names)}
        for option in options:
            assert any(option in text for text in available.values()), option
