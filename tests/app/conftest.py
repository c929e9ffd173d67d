"""The app over a workspace of its own, answered without a socket."""

import io
import json
import multiprocessing

import numpy as np
import pytest
from app_cases import RESNET, VIT
from forks import forks
from PIL import Image

pytest.importorskip("starlette", reason="the extra visprism[app] is not installed")

from starlette.testclient import TestClient

from visprism.app.server import Server
from visprism.app.settings import Limits, Settings

HOST = "http://127.0.0.1:8765"
LIMITS = Limits(
    image_bytes=200_000, checkpoint_bytes=1_000_000, upload_bytes=1_500_000, images=3
)


@pytest.fixture(scope="session")
def settings(tmp_path_factory):
    return Settings(tmp_path_factory.mktemp("app") / "workspace", limits=LIMITS)


@pytest.fixture(scope="session")
def client(settings):
    """Asks below the token: ``client.get("api/catalog")``."""
    with TestClient(Server(settings).app(), f"{HOST}/{settings.token}/") as client:
        yield client


@pytest.fixture(autouse=True)
def new_scans(monkeypatch):
    """Folders are scanned for each request, as a test may have changed one a moment ago."""
    monkeypatch.setattr("visprism.app.listing._PAUSE", 0.0)


@pytest.fixture
def forked_processes(monkeypatch):
    """Processes that the app spawns have imported the package before."""
    original = multiprocessing.get_context

    def get_context(kind):
        return forks() if kind == "spawn" else original(kind)

    monkeypatch.setattr(multiprocessing, "get_context", get_context)


@pytest.fixture(scope="session")
def stranger(client):
    """Asks from the root: ``stranger.get("/TOKEN/api/catalog")``."""
    return TestClient(client.app, HOST)


@pytest.fixture(scope="session")
def photo():
    """An image file and its pixels."""
    pixels = np.random.default_rng(0).integers(0, 256, (40, 48, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue(), pixels


@pytest.fixture
def ask(client):
    """The answer of a live panel."""

    def answer(panel, subject, **values):
        response = client.post(f"api/live/{panel}", json={**subject, **values})
        assert response.status_code == 200, response.text
        return response.json()

    return answer


@pytest.fixture
def request_of():
    """The form of a small study."""

    def form(**values):
        return {
            "title": "two networks",
            "models": [RESNET["model"], VIT["model"]],
            "data": "shapes",
            "analyses": ["anatomy", "variance"],
            "options": {},
            "minutes": 1,
            "limit": 8,
            "seed": 0,
            **values,
        }

    return form


@pytest.fixture
def ended(client):
    """The state of a study at its end, from its events."""

    def state_of(name):
        with client.stream("GET", f"api/studies/{name}/events") as response:
            lines = [line for line in response.iter_lines() if line.startswith("data:")]
        return json.loads(lines[-1].removeprefix("data:"))

    return state_of
