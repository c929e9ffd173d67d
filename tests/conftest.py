"""What holds for every test: no window is opened, nothing is fetched, one thread is enough."""

import gc
import importlib
import os
import random
import shutil
import signal
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import jaxtyping
import matplotlib
import pytest
import torch

matplotlib.use("Agg")
# The tests' arrays are small: threads that wait for each other cost more than they bring, and
# beside other work many times more.
torch.set_num_threads(1)

# A shell that runs the tests in the background has them ignore Ctrl-C, and programs that they
# start inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

PLUGIN = "your_own_analysis"  # of examples/

# Read by huggingface_hub when it is imported; the cache is empty, so all machines are alike.
_CACHE = tempfile.mkdtemp(prefix="visprism-tests-")
os.environ |= {"HF_HUB_OFFLINE": "1", "HF_HOME": _CACHE}
os.environ["OMP_NUM_THREADS"] = "1"  # of programs that tests start


def pytest_unconfigure():
    gc.unfreeze()
    shutil.rmtree(_CACHE, ignore_errors=True)


def pytest_collection_finish():
    """Leave modules and tests to garbage collections no more; a full one took a second."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup():
    """A test draws the same alone, after others, and in any process."""
    if torch.cuda.is_available():
        torch.manual_seed(0)
    else:  # where `torch.manual_seed` formats the stack for a GPU to come, in 0.8 ms
        torch.default_generator.manual_seed(0)


@pytest.fixture
def noise():
    """`noise(2, 3, 8, 8)`: white noise in float64, the same in every run."""
    generator = torch.Generator().manual_seed(0)
    return lambda *shape: torch.randn(shape, generator=generator, dtype=torch.float64)


@pytest.fixture
def unchecked():
    """Leave annotations unchecked in a simulation, which repeats a call thousands of times."""
    jaxtyping.config.update("jaxtyping_disable", value=True)
    yield
    jaxtyping.config.update("jaxtyping_disable", value=False)


@pytest.fixture
def draws_of_python(monkeypatch):
    """The state of random numbers of Python stays: type checks of these tests draw some."""
    now = random.getstate()  # a state, for the compiler of torch sets what it gets
    monkeypatch.setattr("random.getstate", lambda: now)


@pytest.fixture
def real_images():
    """The folder of real data, or a skip that says why."""
    folder = os.environ.get("VISPRISM_DATA")
    if not folder:
        pytest.skip("needs real images: set VISPRISM_DATA to their folder")
    return folder


@contextmanager
def _installed(folder):
    """Install the example of an analysis as a plug-in, as `pip install` would, and undo it."""
    from visprism import ANALYSES
    from visprism.core import registry
    from visprism.table import result

    example = Path(__file__).parents[1] / "examples" / f"{PLUGIN}.py"
    shutil.copy(example, folder)
    info = folder / f"{PLUGIN}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {PLUGIN}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[visprism.plugins]\nsparsity = {PLUGIN}\n")
    before = dict(ANALYSES._functions), dict(result._TYPES)
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    registry.load_plugins.cache_clear()
    try:
        yield folder
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop(PLUGIN, None)
        for registered, names in zip((ANALYSES._functions, result._TYPES), before, strict=True):
            registered.clear()
            registered.update(names)
        registry.load_plugins.cache_clear()


@pytest.fixture(scope="package")
def plugin(tmp_path_factory):
    """The folder of an installed plug-in with the analysis `sparsity`."""
    with _installed(tmp_path_factory.mktemp("site-packages")) as folder:
        yield folder
