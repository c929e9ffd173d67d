"""Laws of the demonstration, with few images."""

import pytest

from visprism import ANALYSES, Study
from visprism.cli import main
from visprism.cli.studies import SHIPPED
from visprism.kit.needs import WORK


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """A demonstration of the cheapest analyses with a twentieth of the arithmetic.

    All of them would need a time budget that depends on the speed of the machine.
    """
    monkeypatch.setitem(WORK, "quick", WORK["quick"] / 20)
    analyses = {name: ANALYSES[name] for name in ("anatomy", "calibration", "variance")}
    monkeypatch.setattr(ANALYSES, "_functions", analyses)


def test_the_shipped_networks_are_examined(tmp_path, capsys):
    assert main(["demo", "--out", str(tmp_path)]) == 0
    assert f"Page: {tmp_path / 'report.html'} " in capsys.readouterr().out
    study = Study.load(tmp_path)
    assert study.models == tuple(SHIPPED)
    of_variance = study["ResNet-20"]["variance"].provenance.images
    assert of_variance <= 256 < study["ResNet-20"]["calibration"].provenance.images
