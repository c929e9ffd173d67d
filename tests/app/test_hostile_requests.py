"""Requests from elsewhere, and requests for what the app does not give: each is refused."""

import io
import json
import os
import pickle
import shutil
import struct
import zlib
from pathlib import Path

import pytest
import torch
from app_cases import RESNET, VIT

from visprism import ANALYSES
from visprism.app.forms import form_options
from visprism.app.settings import Settings
from visprism.cli import main


def test_a_wrong_token_is_refused(stranger, settings):
    for token in ("", "0" * 32, "%2e%2e", settings.token + "0", settings.token[:-1]):
        assert stranger.get(f"/{token}/api/catalog").status_code == 403


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        *(
            ({"host": host}, 400)
            for host in ("evil.example:8765", "127.0.0.1.evil.example:8765", "0.0.0.0:8765")
        ),
        *(({"origin": o}, 403) for o in ("http://evil.example", "null", "http://127.0.0.1:9")),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"content-type": "text/plain"}, 415),
    ],
)
def test_a_request_of_another_site_is_refused(client, request_of, headers, code):
    headers = {"content-type": "application/json"} | headers
    body = json.dumps(request_of())
    assert client.post("api/studies", content=body, headers=headers).status_code == code


def test_nothing_is_shown_in_frames_or_sniffed_or_stored(client):
    headers = client.get("").headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'self'" in policy
    assert "unsafe-inline" not in policy.split("script-src")[1].split(";")[0]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    "where",
    [
        "static/..%2f..%2fserver.py",
        "static/home.html",
        "study/..%2f..%2fetc/report",
        "study/uploads/report",
        "study/none/../../etc/passwd",
        "study/two/results/../../../x.npz",
        "api/live/__init__",
    ],
)
def test_paths_out_of_the_folders_are_refused(client, where):
    assert client.get(where).status_code in (400, 403, 404, 405)


@pytest.mark.parametrize(
    "model",
    [
        {"name": "hf:microsoft/resnet-18"},
        {"name": "timm:hf-hub:timm/resnet18.a1_in1k"},
        {"name": "/etc/passwd.py:main"},
        {"name": "resnet20@weights.pt"},
        {"name": "timm:resnet18?checkpoint_path=/etc/passwd"},
        {"name": "timm:resnet18?pretrained=True"},
        {"name": "resnet20", "checkpoint": "../../../etc/passwd"},
        {"name": "resnet20", "checkpoint": ["a"]},
        {"name": "<script>alert(1)</script>"},
        {"name": "resnet20?x=elsewhere.safetensors"},
        {"name": "a" * 1000},
        {"name": 3},
        "resnet20",
    ],
)
def test_models_by_path_code_or_repository_are_refused(client, request_of, model):
    responses = [
        client.post("api/studies", json=request_of(models=[model])),
        client.post("api/live/model", json={"model": model, "data": "shapes"}),
    ]
    for response in responses:
        assert response.status_code == 400
        assert "error" in response.json()


def test_a_link_out_of_a_folder_of_checkpoints_is_not_offered(tmp_path):
    folder = tmp_path / "weights"
    folder.mkdir()
    (tmp_path / "secret.pt").write_bytes(b"x")
    (folder / "link.pt").symlink_to(tmp_path / "secret.pt")
    (folder / "own.pt").write_bytes(b"x")
    settings = Settings(tmp_path / "workspace", checkpoints=(folder,))
    assert list(settings.checkpoint_files()) == ["weights/own.pt"]


def test_requests_larger_than_the_limit_are_refused(client):
    large, unstated = b" " * 300_000, iter([b"x" * 10_000] * 40)
    for path, content, headers in (
        ("api/live/model", large, {"content-type": "application/json"}),
        ("api/images/a/b.png", b"x", {"content-length": "99999999999"}),
        ("api/images/a/b.png", unstated, {}),
    ):
        assert client.post(path, content=content, headers=headers).status_code == 413


NAMES_FILES = {
    "trajectory": "checkpoints",
    "intrinsic-dimension": "features",
    "out-of-distribution": "ood_data",
    "distribution-shift": "sets",
}


def test_no_option_of_the_app_takes_a_name_of_a_file_or_of_data():
    free = {
        (name, option.name)
        for name in ANALYSES
        for option in form_options(ANALYSES[name]).values()
        if option.choices is None and option.metavar not in {"N", "X", "N,...", "X,..."}
        if option.type is not bool
    }
    assert free == {("density", "parameters"), ("hessian", "parameters")}  # patterns of names


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        *(({"models": m}, "models must be 1 to 8") for m in ([], [VIT["model"]] * 9)),
        *(
            ({"data": data}, "data must be one of shapes")
            for data in ("folder:/etc", "folder:.", "cifar10", "")
        ),
        *(
            ({"data": data}, f"data must be a text, got {what}")
            for data, what in ((None, "null"), ([], "a list"))
        ),
        *(
            (
                {"analyses": [name], "options": {name: {option: "/etc/passwd"}}},
                f"has no option '{option}' in the app",
            )
            for name, option in NAMES_FILES.items()
        ),
        *(({"minutes": minutes}, "") for minutes in (1e9, -1, "1")),
        ({"limit": 0}, "limit must be an integer >= 1"),
        ({"limit": 1.5}, "limit must be an integer, got a number"),
        ({"limit": 10**12}, "limit must be an integer <= 100000"),
        *(
            ({"models": [{"name": name}]}, sentence)
            for name, sentence in (
                ("resnet99.shapes", "unknown pretrained weights 'resnet99.shapes'"),
                ("resnet20.shapes?depth=3", "takes no argument 'depth'"),
                ("timm:no_such_model", "unknown model"),
                ("torchvision:no_such_model", "unknown model"),
            )
        ),
        *(({"title": title}, "") for title in ("x" * 500, {"a": 1})),
        *(({"analyses": names}, "") for names in ("anatomy", [], ["../x"])),
        *(({"options": {"fourier": {name: "x"}}}, "") for name in ("profile", "__class__")),
        *(({"options": [1]}, ""), ({"seed": -1}, ""), ({"out": "/etc/x"}, "")),
    ],
)
def test_values_that_no_form_gives_are_refused(client, request_of, values, sentence):
    response = client.post("api/studies", json=request_of(**values))
    assert response.status_code == 400
    assert sentence in response.json()["error"]


def test_bodies_that_are_no_json_object_are_refused(client):
    kind = {"content-type": "application/json"}
    for body in ("[1]", '{"a": NaN}', "[" * 50_000, ""):
        assert client.post("api/live/model", content=body, headers=kind).status_code == 400


class Attack:
    def __reduce__(self):
        return (open, ("attacked", "w"))


def test_checkpoints_that_run_code_or_are_damaged_are_refused(client, settings):
    before, zipped = list(settings.uploaded_checkpoints.glob("*")), io.BytesIO()
    torch.save({"weight": Attack()}, zipped)
    for name, body in (
        ("a.pt", pickle.dumps(Attack())),
        ("a.pt", zipped.getvalue()),
        ("a.safetensors", struct.pack("<Q", 2**62)),
        ("a.npz", b"x"),
    ):
        assert client.post(f"api/checkpoints/{name}", content=body).status_code == 400
        assert list(settings.uploaded_checkpoints.glob("*")) == before
    assert not Path("attacked").exists()


def bomb():
    """A PNG of 30000 x 30000 pixels in a few bytes."""
    header = struct.pack(">IIBBBBB", 30_000, 30_000, 8, 2, 0, 0, 0)
    chunks = [b"\x89PNG\r\n\x1a\n"]
    for kind, data in ((b"IHDR", header), (b"IDAT", b"x"), (b"IEND", b"")):
        check = struct.pack(">I", zlib.crc32(kind + data))
        chunks += [struct.pack(">I", len(data)), kind, data, check]
    return b"".join(chunks)


def test_files_that_are_no_images_are_refused(client):
    eps = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"
    for name, body in {
        "a.png": b"<svg onload=alert(1)>",
        "b.png": bomb(),
        "c.eps": eps,
    }.items():
        response = client.post(f"api/images/set/{name}", content=body)
        assert response.status_code == 400
        assert "an upload must be an image" in response.json()["error"]


def test_names_of_uploads_are_names_of_files_inside(client, settings, photo):
    body, _ = photo
    names = ["..%2f..%2fx.png", "%3Cscript%3E.png", "a%00b.png"]
    sets = ["..%2f..%2fx", "%3Cb%3E", ".."]
    for number, (where, name) in enumerate(zip(sets, names, strict=True)):
        response = client.post(f"api/images/{where}/{name}", content=body)
        assert response.status_code in (201, 404), (number, response.text)
    files = [p for p in settings.workspace.rglob("*.png")]
    assert files
    assert all(p.parent.parent == settings.uploaded_images for p in files)
    assert all(c.isalnum() or c in "-._" for p in files for c in p.name + p.parent.name)


def test_a_set_and_all_uploads_are_limited(client, photo):
    body, _ = photo
    posts = [client.post(f"api/images/many/{i}.png", content=body) for i in range(5)]
    codes = [response.status_code for response in posts]
    assert codes == [201, 201, 201, 400, 400]


@pytest.fixture
def copied(settings):
    """The folder of a study that somebody else has made."""
    folder = settings.workspace / "copied"
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


def test_markup_in_names_is_text(client, copied, request_of):
    title = "<img src=x onerror=alert(1)>"
    (copied / "request.json").write_text(json.dumps(request_of(title=title)))
    text = client.get("study/copied").text
    assert "<img src=x" not in text
    assert "&lt;img src=x" in text


DEEP = "[" * 200_000


@pytest.mark.parametrize(
    "text",
    [
        '{"format": 2, "header": {}, "entries": {"k": {"models": 3}}}',
        DEEP,
        '{"format": 2, "header": {"keys": ["k"]}, "entries": {}}',
    ],
)
@pytest.mark.usefixtures("forked_processes")
def test_a_damaged_study_is_a_red_line_and_one_sentence(client, copied, text):
    (copied / "study.json").write_text(text)
    (listed,) = [s for s in client.get("api/studies").json() if s["name"] == "copied"]
    assert listed["state"] == "unreadable"
    assert "study.json cannot be read" in listed["reason"]
    assert client.get("").status_code == client.get("study/copied").status_code == 200
    assert client.get("study/copied/report").status_code in (200, 400)


def huge(path):
    with path.open("wb") as file:
        file.truncate(2**36)


@pytest.mark.parametrize("file", ["request.json", "failed.txt", "study.json"])
def test_a_pipe_or_a_huge_file_in_a_study_holds_up_nothing(client, copied, file):
    (copied / "study.json").write_text('{"format": 2, "header": {}, "entries": {}}')
    (copied / "request.json").write_text("{}")
    for make in (os.mkfifo, huge):
        (copied / file).unlink(missing_ok=True)
        make(copied / file)
        assert "copied" in {s["name"] for s in client.get("api/studies").json()}
        assert client.post("api/studies/copied/resume", json={}).status_code == 400


FOREIGN = '{"models": [{"name": "code.py:build"}]}'


@pytest.mark.parametrize("text", [DEEP, '{"title": "\\ud800"}', '{"title": 3}', FOREIGN])
def test_a_request_of_somebody_else_is_listed_and_checked(client, copied, text):
    (copied / "request.json").write_text(text)
    assert "copied" in {s["name"] for s in client.get("api/studies").json()}
    for page in ("", "study/copied"):
        assert client.get(page).status_code == 200
    response = client.post("api/studies/copied/resume", json={})
    assert response.status_code == 400
    assert "must be" in response.json()["error"]


@pytest.mark.parametrize(
    ("panel", "values"),
    [
        ("attention", {**RESNET, "row": 1, "column": 1}),  # which has none
        ("images", {"images": [-1]}),
        ("images", {"images": [10**9]}),
        ("images", {"images": [0] * 99}),
        ("attention", {"row": 999, "column": 0}),
        ("ablation", {"blocks": ["head"]}),
        ("ablation", {"blocks": ["blocks.0.attn", "blocks.0.attn"]}),
        ("frequency_noise", {"frequency": 7}),
        ("frequency_noise", {"frequency": 0.5, "rms": "inf"}),
        ("corruption", {"corruption": "__class__", "severity": 1}),
        ("corruption", {"corruption": "fog", "severity": 6}),
        ("receptive_field", {"block": "blocks.0.attn", "x": 2, "y": 0}),
        ("landscape", {"direction": 1, "distance": 1e30}),
    ],
)
def test_values_out_of_range_are_one_sentence(client, panel, values):
    response = client.post(f"api/live/{panel}", json={**VIT, **values})
    assert response.status_code == 400
    assert "must" in response.json()["error"]


def test_the_command_names_its_own_flags(tmp_path, capsys):
    assert main(["view", "--weights", str(tmp_path / "none"), "--out", str(tmp_path)]) == 2
    assert "--weights must be folders, got" in capsys.readouterr().err
    (tmp_path / "file").touch()
    assert main(["view", "--out", str(tmp_path / "file")]) == 2
    assert "--out must be a folder that can be written to" in capsys.readouterr().err
