"""Fixtures of figures: each type of result, and axes."""

import pytest
from results_by_hand import MAKERS


@pytest.fixture(scope="session")
def made():
    """Every type of result, by name."""
    return {name: make() for name, make in MAKERS.items()}


@pytest.fixture(params=MAKERS)
def result(request, made):
    """Each type of result in turn."""
    return made[request.param]


@pytest.fixture
def ax():
    """Axes that no global figure knows."""
    from matplotlib.figure import Figure

    return Figure().subplots()
