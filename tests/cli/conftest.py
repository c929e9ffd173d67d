"""Figures take most of the time of a command; tests of other things do without."""

import pytest


@pytest.fixture
def without_figures(monkeypatch):
    monkeypatch.setattr("visprism.examine.write_figures", lambda *_: None)
