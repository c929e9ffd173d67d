"""What holds for every test: no window is opened, nothing is fetched."""

import os
import shutil
import tempfile

import matplotlib
import pytest

matplotlib.use("Agg")

# Read by huggingface_hub when it is imported; the cache is empty, so all machines are alike.
_CACHE = tempfile.mkdtemp(prefix="visprism-tests-")
os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HOME": _CACHE}


def pytest_unconfigure():
    shutil.rmtree(_CACHE, ignore_errors=True)


@pytest.fixture
def real_images():
    """The folder of real data, or a skip that says why."""
    folder = os.environ.get("VISPRISM_DATA")
    if not folder:
        pytest.skip("needs real images: set VISPRISM_DATA to their folder")
    return folder
