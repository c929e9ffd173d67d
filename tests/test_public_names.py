"""The public names: what ``import visprism`` offers, and that it offers it lazily."""

import runpy
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import visprism
from visprism import ANALYSES
from visprism.core.options import options_of
from visprism.results import result_types

PROJECT = Path(__file__).parent.parent


@pytest.mark.parametrize("name", visprism.__all__)
def test_every_name_is_available_and_documented(name):
    assert getattr(visprism, name).__doc__.strip()
    assert name in dir(visprism)


def test_every_type_of_result_is_public():
    built_in = [t for t in result_types().values() if t.__module__.startswith("visprism.")]
    assert built_in
    for result in built_in:
        assert getattr(visprism.results, result.__name__) is result
        assert result.__name__ in dir(visprism.results)


def test_every_analysis_is_public():
    for analysis in ANALYSES.values():
        if not analysis.__module__.startswith("visprism."):  # registered by another test
            continue
        name = analysis.__name__
        assert getattr(visprism.analyses, name) is analysis
        assert name in dir(visprism.analyses)
        assert name.lower() == analysis.name.replace("-", "")
        if name not in ("Anatomy", "Attention"):  # `vp.Anatomy` is of a model
            assert getattr(visprism, name, analysis) is analysis


def test_the_reference_is_made_from_the_docstrings():
    made = runpy.run_path(str(PROJECT / "docs" / "make_reference.py"))["reference"]()
    assert made == (PROJECT / "docs" / "reference.md").read_text("utf-8"), (
        "run python docs/make_reference.py"
    )


@pytest.mark.parametrize("place", [visprism, visprism.analyses])
def test_an_unknown_name_is_an_attribute_error(place):
    with pytest.raises(AttributeError, match="has no attribute 'dissekt'"):
        place.dissekt  # noqa: B018


def test_neither_the_package_nor_the_help_imports_another_package():
    """So that they take 0.1 s on an idle core, and torch seconds."""
    program = (
        "import sys; before = {*sys.modules, *sys.stdlib_module_names};"
        "import visprism, visprism.cli.parser as p; p.help_text(); visprism.__all__;"
        "from visprism.cli import main; main(['models']);"
        "print({m.partition('.')[0] for m in sys.modules} - before)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert answer.stdout.splitlines()[-1] == "{'visprism'}"


# Pages of analyses.
ANALYSIS_PAGES = sorted((PROJECT / "docs" / "analyses").glob("*.md"))


def test_every_analysis_has_a_page_and_its_options_are_those_of_the_declaration():
    names = {n for n, a in ANALYSES.items() if a.__module__.startswith("visprism.")}
    assert names <= {path.stem for path in ANALYSIS_PAGES}
    pages = runpy.run_path(str(PROJECT / "docs" / "make_reference.py"))["analysis_pages"]()
    assert {p.stem for p in pages} == {n for n in names if options_of(ANALYSES[n])}
    for path, text in pages.items():
        assert "\n## Options\n\n| option | default | meaning |\n" in text, path.name
        assert text == path.read_text("utf-8"), "run python docs/make_reference.py"


def test_the_version_is_that_of_the_package():
    assert visprism.__version__ == version("visprism")
