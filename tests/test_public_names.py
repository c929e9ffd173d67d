"""The public names: what ``import visprism`` offers, and that it offers it lazily."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import visprism

REFERENCE = Path(__file__).parent.parent / "docs" / "reference.md"


@pytest.mark.parametrize("name", visprism.__all__)
def test_every_name_is_there_and_says_what_it_is(name):
    assert getattr(visprism, name).__doc__.strip()
    assert name in dir(visprism)


def test_the_reference_says_what_the_docstrings_say():
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", REFERENCE.read_text("utf-8"), re.MULTILINE)
    docs = {name: getattr(visprism, name).__doc__.strip() for name in visprism.__all__}
    assert dict(rows) == {name: doc.partition("\n")[0] for name, doc in docs.items()}


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'visprism' has no attribute 'dissekt'"):
        visprism.dissekt  # noqa: B018


def test_neither_the_package_nor_the_help_imports_torch():
    program = (
        "import sys, visprism, visprism.cli.arguments as a; a.parser().format_help();"
        "print(sorted({'torch', 'numpy', 'timm', 'matplotlib', 'rich'} & set(sys.modules)))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert answer.stdout == "[]\n"
