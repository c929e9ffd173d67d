"""The layers of pyproject.toml: a part imports from below, never from above or beside."""

import re
import tomllib
from pathlib import Path

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
