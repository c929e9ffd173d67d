"""What holds for every test: no window is opened, nothing is fetched, one thread is enough."""

import os
import shutil
import tempfile

import matplotlib
import pytest
import torch

matplotlib.use("Agg")
# The tests' arrays are small: threads that wait for each other cost more than they bring, and
# beside other work many times more.
torch.set_num_threads(1)

# Read by huggingface_hub when it is imported; the cache is empty, so all machines are alike.
_CACHE = tempfile.mkdtemp(prefix="visprism-tests-")
os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HOME": _CACHE}


def pytest_unconfigure():
    shutil.rmtree(_CACHE, ignore_errors=True)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    """A test draws the same alone, after others, and in any process."""
    torch.manual_seed(0)


@pytest.fixture
def real_images():
    """The folder of real data, or a skip that says why."""
    folder = os.environ.get("VISPRISM_DATA")
    if not folder:
        pytest.skip("needs real images: set VISPRISM_DATA to their folder")
    return folder
