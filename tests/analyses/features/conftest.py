"""Feature maps that need no model."""

import maps
import pytest


@pytest.fixture(scope="session")
def measure():
    """`measure(analysis, x, y)`: the main result of feature maps of successive blocks."""
    return lambda *args, **options: maps.results_of(*args, **options)[0]
