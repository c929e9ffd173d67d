"""Requests from elsewhere, and requests for what the app does not give: each is refused."""

import io
import json
import pickle
import struct
import zlib
from pathlib import Path

import pytest
import torch
from app_cases import RESNET, VIT

from visprism import InputError
from visprism.app.settings import Settings
from visprism.cli import main


def path(settings, rest):
    return f"/{settings.token}/{rest}"


@pytest.mark.parametrize("token", ["", "0" * 32, "x", "..", "%2e%2e"])
def test_a_wrong_token_is_refused(stranger, token):
    assert stranger.get(f"/{token}/api/catalog").status_code == 403


def test_a_token_of_another_length_or_case_is_refused(stranger, settings):
    for token in (settings.token[:-1], settings.token + "0", settings.token.upper() + "A"):
        assert stranger.get(f"/{token}/").status_code == 403


@pytest.mark.parametrize(
    "host",
    ["evil.example:8765", "127.0.0.1.evil.example:8765", "evil.example", "0.0.0.0:8765"],
)
def test_a_name_that_points_to_this_machine_is_refused(stranger, settings, host):
    response = stranger.get(path(settings, "api/catalog"), headers={"host": host})
    assert response.status_code == 400


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:9"])
def test_a_page_of_another_site_is_refused(stranger, settings, origin, request_of):
    response = stranger.post(
        path(settings, "api/studies"), json=request_of(), headers={"origin": origin}
    )
    assert response.status_code == 403


def test_a_form_of_another_site_is_refused(client, request_of):
    cross = client.post(
        "api/studies", json=request_of(), headers={"sec-fetch-site": "cross-site"}
    )
    plain = client.post(
        "api/studies", content=json.dumps(request_of()), headers={"content-type": "text/plain"}
    )
    assert (cross.status_code, plain.status_code) == (403, 415)


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
        "static/../server.py",
        "static/..%2f..%2fserver.py",
        "static/home.html",
        "study/..%2f..%2fetc/report",
        "study/%2e%2e/report",
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
        {"name": "/etc/passwd.py:main"},
        {"name": "code.py:build"},
        {"name": "resnet20@/etc/passwd"},
        {"name": "resnet20@weights.pt"},
        {"name": "timm:resnet18?checkpoint_path=/etc/passwd"},
        {"name": "timm:resnet18?pretrained=True"},
        {"name": "timm:../../x"},
        {"name": "resnet20", "checkpoint": "../../../etc/passwd"},
        {"name": "resnet20", "checkpoint": ["a"]},
        {"name": "<script>alert(1)</script>"},
        {"name": "resnet20\n"},
        {"name": "elsewhere.safetensors"},
        {"name": "resnet20?x=elsewhere.safetensors"},
        {"name": "a" * 1000},
        {"name": 3},
        "resnet20",
        None,
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


@pytest.mark.parametrize("data", ["folder:/etc", "folder:.", "cifar10", "", None, ["x"]])
def test_data_that_no_form_lists_is_refused(client, request_of, data):
    response = client.post("api/studies", json=request_of(data=data))
    assert response.status_code == 400
    assert "data must be one of shapes" in response.json()["error"]


def test_options_that_name_files_are_refused(client, request_of):
    form = request_of(
        analyses=["trajectory"], options={"trajectory": {"checkpoints": "/etc/passwd"}}
    )
    response = client.post("api/studies", json=form)
    assert response.status_code == 400
    assert "has no option 'checkpoints' in the app" in response.json()["error"]


def test_a_link_out_of_a_folder_of_checkpoints_is_not_offered(tmp_path):
    folder = tmp_path / "weights"
    folder.mkdir()
    (tmp_path / "secret.pt").write_bytes(b"x")
    (folder / "link.pt").symlink_to(tmp_path / "secret.pt")
    (folder / "own.pt").write_bytes(b"x")
    settings = Settings(tmp_path / "workspace", checkpoints=(folder,))
    assert list(settings.checkpoint_files()) == ["weights/own.pt"]


def test_requests_larger_than_the_limit_are_refused(client):
    large = client.post(
        "api/live/model",
        content=b" " * 300_000,
        headers={"content-type": "application/json"},
    )
    stated = client.post(
        "api/images/a/b.png", content=b"x", headers={"content-length": "99999999999"}
    )
    assert (large.status_code, stated.status_code) == (413, 413)


def test_an_upload_without_a_stated_length_is_cut_at_the_limit(client):
    def chunks():
        for _ in range(40):
            yield b"x" * 10_000

    response = client.post("api/images/a/b.png", content=chunks())
    assert response.status_code == 413


@pytest.mark.parametrize("values", [{"models": []}, {"models": [VIT["model"]] * 9}])
def test_too_few_or_too_many_models_are_refused(client, request_of, values):
    response = client.post("api/studies", json=request_of(**values))
    assert "models must be 1 to 8" in response.json()["error"]


@pytest.mark.parametrize(
    "values",
    [
        {"minutes": 1e9},
        {"minutes": -1},
        {"minutes": "1"},
        {"limit": 0},
        {"limit": 10**12},
        {"seed": -1},
        {"title": "x" * 500},
        {"title": {"a": 1}},
        {"analyses": "anatomy"},
        {"analyses": []},
        {"analyses": ["../x"]},
        {"options": {"fourier": {"profile": "x"}}},
        {"options": {"fourier": {"__class__": "x"}}},
        {"options": [1]},
        {"out": "/etc/x"},
    ],
)
def test_values_that_no_form_gives_are_refused(client, request_of, values):
    assert client.post("api/studies", json=request_of(**values)).status_code == 400


@pytest.mark.parametrize("body", ["[1]", "{", "NaN", '{"a": NaN}', "[" * 50_000, "", "\x00"])
def test_bodies_that_are_no_json_object_are_refused(client, body):
    response = client.post(
        "api/live/model", content=body, headers={"content-type": "application/json"}
    )
    assert response.status_code == 400


class Attack:
    def __reduce__(self):
        return (open, ("attacked", "w"))


def pickled():
    buffer = io.BytesIO()
    torch.save({"weight": Attack()}, buffer)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("a.pt", pickle.dumps(Attack())),
        ("a.pt", pickled()),
        ("a.safetensors", b"\xff" * 100),
        ("a.safetensors", struct.pack("<Q", 2**62)),
        ("a.py", b"import os"),
        ("a.npz", b"x"),
    ],
)
def test_checkpoints_that_run_code_or_are_damaged_are_refused(client, settings, name, body):
    response = client.post(f"api/checkpoints/{name}", content=body)
    assert response.status_code == 400
    assert not list(settings.uploaded_checkpoints.glob("*"))
    assert not Path("attacked").exists()


def bomb():
    """A PNG of 30000 x 30000 pixels in a few bytes."""

    def chunk(kind, data):
        check = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + check

    header = struct.pack(">IIBBBBB", 30_000, 30_000, 8, 2, 0, 0, 0)
    parts = chunk(b"IHDR", header), chunk(b"IDAT", b"x"), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("a.png", b"<svg onload=alert(1)>"),
        ("a.png", b"<html><script>alert(1)</script>"),
        ("a.png", b""),
        ("a.eps", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"),
        ("a.png", bomb()),
    ],
)
def test_files_that_are_no_images_are_refused(client, name, body):
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


def test_markup_in_names_is_text(client, settings, request_of):
    title = "<img src=x onerror=alert(1)>"
    folder = settings.workspace / "markup"
    folder.mkdir()
    (folder / "request.json").write_text(json.dumps(request_of(title=title)))
    try:
        text = client.get("study/markup").text
        assert "<img src=x" not in text
        assert "&lt;img src=x" in text
    finally:
        (folder / "request.json").unlink()
        folder.rmdir()


@pytest.mark.parametrize("form", ["[]", "{", '{"models": [{"name": "code.py:build"}]}'])
def test_the_request_in_a_folder_of_somebody_else_is_checked(client, settings, form):
    folder = settings.workspace / "copied"
    folder.mkdir()
    (folder / "request.json").write_text(form)
    try:
        response = client.post("api/studies/copied/resume", json={})
        assert response.status_code == 400
        assert "must be" in response.json()["error"]
    finally:
        (folder / "request.json").unlink()
        folder.rmdir()


def index_with(entry):
    return json.dumps({"format": 1, "header": {}, "entries": {"k": entry}})


DEEP = "[" * 200_000


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("study.json", index_with({"files": 3})),
        ("study.json", index_with(3)),
        ("study.json", index_with({"models": 3})),
        ("study.json", index_with({"models": ["a"], "analysis": "b", "seconds": 1e999})),
        ("study.json", DEEP),
        ("study.json", '{"format": 1, "header": {"failures": 3}, "entries": {}}'),
    ],
)
def test_a_damaged_study_is_a_red_line_and_one_sentence(client, settings, file, text):
    folder = settings.workspace / "damaged"
    folder.mkdir()
    (folder / file).write_text(text)
    try:
        (listed,) = [s for s in client.get("api/studies").json() if s["name"] == "damaged"]
        assert listed["state"] == "unreadable"
        assert "study.json cannot be read" in listed["reason"]
        assert client.get("").status_code == 200
        assert client.get("study/damaged").status_code == 200
        assert client.get("study/damaged/report").status_code in (200, 400)
    finally:
        (folder / file).unlink()
        folder.rmdir()


@pytest.mark.parametrize("text", [DEEP, '{"title": "\\ud800"}', '{"title": 3}', "\x00"])
def test_a_damaged_request_is_listed_by_its_folder_or_title(client, settings, text):
    folder = settings.workspace / "copied"
    folder.mkdir()
    (folder / "request.json").write_text(text)
    try:
        assert "copied" in {s["name"] for s in client.get("api/studies").json()}
        for page in ("", "study/copied"):
            assert client.get(page).status_code == 200
        response = client.post("api/studies/copied/resume", json={})
        assert response.status_code == 400
    finally:
        (folder / "request.json").unlink()
        folder.rmdir()


@pytest.mark.parametrize(
    ("panel", "values"),
    [
        ("images", {"images": [-1]}),
        ("images", {"images": [10**9]}),
        ("images", {"images": [True]}),
        ("images", {"images": [0] * 99}),
        ("images", {"images": "0"}),
        ("attention", {"row": 999, "column": 0}),
        ("attention", {"row": 1.5, "column": 0}),
        ("ablation", {"blocks": ["head"]}),
        ("ablation", {"blocks": ["blocks.0.attn", "blocks.0.attn"]}),
        ("ablation", {"blocks": "head"}),
        ("frequency_noise", {"frequency": 7}),
        ("frequency_noise", {"frequency": 0.5, "rms": "inf"}),
        ("corruption", {"corruption": "__class__", "severity": 1}),
        ("corruption", {"corruption": "fog", "severity": 6}),
        ("receptive_field", {"block": "none", "x": 0, "y": 0}),
        ("receptive_field", {"block": "blocks.0.attn", "x": 2, "y": 0}),
        ("landscape", {"direction": 0, "distance": 0}),
        ("landscape", {"direction": 1, "distance": 1e30}),
    ],
)
def test_values_out_of_range_are_one_sentence(client, panel, values):
    response = client.post(f"api/live/{panel}", json={**VIT, **values})
    assert response.status_code == 400
    assert "must" in response.json()["error"]


def test_a_model_without_attention_is_one_sentence(client):
    response = client.post("api/live/attention", json={**RESNET, "row": 1, "column": 1})
    assert response.status_code == 400
    assert "must have an attention" in response.json()["error"]


def test_the_command_names_its_own_flags(tmp_path, capsys):
    assert main(["view", "--weights", str(tmp_path / "none"), "--out", str(tmp_path)]) == 2
    assert "--weights must be folders, got" in capsys.readouterr().err
    (tmp_path / "file").touch()
    assert main(["view", "--out", str(tmp_path / "file")]) == 2
    assert "--out must be a folder that can be written to" in capsys.readouterr().err


def test_settings_name_folders(tmp_path):
    with pytest.raises(InputError, match="studies must be folders, got"):
        Settings(tmp_path / "workspace", studies=(tmp_path / "none",))
