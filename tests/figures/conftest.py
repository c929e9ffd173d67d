"""Fixtures of figures: each type of result, and axes."""

from collections.abc import Mapping

import pytest
from results_by_hand import MAKERS


@pytest.fixture(params=MAKERS)
def result(request):
    """Each type of result in turn."""
    return MAKERS[request.param]()


class Made(Mapping):
    """Every type of result, by name; made when it is first used."""

    def __getitem__(self, name):
        return MAKERS[name]()

    def __iter__(self):
        return iter(MAKERS)

    def __len__(self):
        return len(MAKERS)


@pytest.fixture
def made():
    """Every type of result, by name."""
    return Made()


@pytest.fixture
def ax():
    """Axes that no global figure knows."""
    from matplotlib.figure import Figure

    return Figure().subplots()
