"""One small study of the two shipped networks, shared by the laws of the command line.

Its analysis is that of the installed plug-in (examples/your_own_analysis.py), so that these
laws depend on no measurement.
"""

import pytest

from visprism.cli import main

MODELS = ["resnet20.shapes", "vit_pico_patch4_32.shapes"]
TINY = ["--data", "shapes", "--limit", "12", "--batch-size", "4"]


@pytest.fixture(scope="package")
def study_command(plugin):
    """A command that measures the sparsity of two networks; a folder is still missing."""
    return ["sparsity", *MODELS, *TINY, "--out"]


@pytest.fixture(scope="package")
def studied(study_command, tmp_path_factory):
    """The folder that the command leaves."""
    out = tmp_path_factory.mktemp("studied") / "new" / "folder"
    assert main([*study_command, str(out)]) == 0
    return out


@pytest.fixture
def no_page(monkeypatch):
    """Commands write tables, but no page and figures, which take longer than the analyses."""
    monkeypatch.setattr("visprism.study.files.write_files", lambda *_, **__: None)
