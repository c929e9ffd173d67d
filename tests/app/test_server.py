"""Each route answers what the package answers without the app."""

import asyncio
import html
import os
import re
import shutil
import time
from functools import partial
from urllib.parse import urljoin

import numpy as np
import pytest
from accessibility import Checker
from app_cases import VIT
from PIL import Image
from starlette.exceptions import HTTPException

from visprism import ANALYSES, InputError, Study, load_model, save_checkpoint
from visprism.app import listing
from visprism.app.forms import form_options
from visprism.app.listing import stored_state
from visprism.app.renderer import Renderer, stored_page
from visprism.app.server import Server
from visprism.app.settings import Settings, studies_in
from visprism.app.uploads import store_image
from visprism.core.files import lock_folder
from visprism.images.pixels import decode
from visprism.report.page import script_hashes


def test_forms_offer_every_analysis_with_its_options_and_presets_of_them(client):
    catalog = client.get("api/catalog").json()
    names = [a["name"] for a in catalog["analyses"]]
    assert names == list(ANALYSES)
    assert all(set(preset) <= set(names) for preset in catalog["presets"].values())
    others = {"sparsity"}  # registered by a test of plug-ins
    defaults = {name for name in ANALYSES if ANALYSES[name].default}
    assert set(catalog["presets"]["everything"]) - others == defaults - others
    for analysis in catalog["analyses"]:
        declared = form_options(ANALYSES[analysis["name"]])
        assert [o["name"] for o in analysis["options"]] == list(declared)
        for option in analysis["options"]:
            for effort, text in option["defaults"].items():  # not sent where it is not changed
                (used,) = ANALYSES.chosen(analysis["name"], effort=effort)
                value = declared[option["name"]].parse(text) if text else ()
                assert value == getattr(used, option["name"])


def test_every_page_and_file_of_a_page_is_answered_and_breaks_no_rule_of_accessibility(client):
    for page in ("", "live"):
        text = client.get(page).text
        assert not Checker(text).problems
        for address in re.findall(r'(?:src|href)="\./([^"]*)"', text):
            assert client.get(address).status_code == 200, address
    assert client.get("study/none").status_code == 404
    assert client.get("static/none.js").status_code == 404


@pytest.mark.parametrize("address", ["study/none", "study/none/report", "nowhere"])
def test_an_error_is_json_for_scripts_and_a_page_with_its_sentence_in_a_browser(
    client, address
):
    sentence = client.get(address).json()["error"]
    page = client.get(address, headers={"accept": "text/html,*/*"})
    assert page.status_code == client.get(address).status_code
    assert sentence in html.unescape(page.text)
    assert not Checker(page.text).problems
    (home,) = re.findall(r'<p><a href="([^"]*)"', page.text)
    assert client.get(urljoin(str(page.url), home)).text == client.get("").text


def test_a_server_that_is_started_again_has_the_same_address(settings):
    assert Settings(settings.workspace).token == settings.token
    assert (settings.workspace / ".visprism-token").stat().st_mode & 0o077 == 0


def test_uploaded_images_are_data_with_their_pixels(client, settings, photo):
    body, pixels = photo
    data = client.post("api/images/mine/a%20photo.png", content=body).json()["data"]
    assert data in client.get("api/catalog").json()["data"]
    path = settings.uploaded_images / "mine" / "a-photo.png"
    assert (pixels == Image.open(path)).all()


def test_an_upload_is_decoded_as_a_file_of_a_folder(tmp_path):
    rotated, way = Image.new("RGB", (40, 20), "red"), Image.Exif()
    way[0x0112] = 6  # the orientation
    for number, (picture, kind, options) in enumerate(
        (
            (rotated, "JPEG", {"exif": way}),
            (Image.fromarray(np.full((4, 4), 20000, dtype=np.uint16)), "PNG", {}),
            (Image.new("RGBA", (4, 4), (0, 0, 0, 0)), "PNG", {}),
        )
    ):
        path = tmp_path / f"{number}.{kind.lower()}"
        picture.save(path, kind, **options)
        stored = store_image(Settings(tmp_path), "set", path.name, path.read_bytes())
        assert np.array_equal(decode(stored), decode(path))


def test_an_uploaded_checkpoint_is_a_model(client, ask, tmp_path):
    network = load_model("vit_pico_patch4_32.shapes")
    path = tmp_path / "mine.safetensors"
    save_checkpoint(network.model, path, preprocessing=network.preprocessing)
    response = client.post("api/checkpoints/mine.safetensors", content=path.read_bytes())
    name = response.json()["checkpoint"]
    subject = {"model": {"name": "vit_pico_patch4_32", "checkpoint": name}, "data": "shapes"}
    stored, shipped = (ask("images", s)["predictions"][0]["top"] for s in (subject, VIT))
    assert [c["class"] for c in stored] == [c["class"] for c in shipped]
    logits = [[c["logit"] for c in top] for top in (stored, shipped)]
    assert logits[0] == pytest.approx(logits[1], rel=0, abs=2e-3)


@pytest.mark.slow
def test_a_study_is_planned_run_canceled_and_resumed(client, settings, request_of, ended):
    long = request_of(title="long", analyses=["anatomy", "landscape"], limit=256, minutes=None)
    name = client.post("api/studies", json=long).json()["name"]
    second = client.post("api/studies", json=request_of()).json()["name"]
    states = {s["name"]: s["state"] for s in client.get("api/studies").json()}
    assert {states[name], states[second]} == {"running", "waiting"}
    _until((settings.workspace / name / "study.json").exists)  # after the first result
    client.post(f"api/studies/{name}/cancel", json={})
    assert ended(name)["state"] == "canceled"
    measured = {e.analysis for e in Study.load(settings.workspace / name).entries}
    assert measured == {"anatomy"}

    state = ended(second)
    assert state["state"] == "complete", state
    assert any("variance" in line for line in state["plan"])
    study = Study.load(settings.workspace / second)
    assert set(study.analyses) == {"anatomy", "variance"}
    assert "variance" in client.get(f"study/{second}/study.md").text
    assert client.get(f"study/{second}/results.json").json()["models"] == list(study.models)
    report = client.get(f"study/{second}/report?figures=no")  # stored, so with figures at once
    assert report.headers["x-page"] == "stored"
    assert report.text == (settings.workspace / second / "report.html").read_text("utf-8")
    (table, *_) = re.findall(r'href="(results/[^"]*csv)"', report.text)
    assert (
        client.get(f"study/{second}/{table}").content
        == (settings.workspace / second / table).read_bytes()
    )
    (settings.workspace / second / "report.html").unlink()
    tables = client.get(f"study/{second}/report?figures=no")
    report = client.get(f"study/{second}/report")
    assert "<figure" not in tables.text
    assert "<figure" in report.text
    assert "script-src 'sha256-" in report.headers["content-security-policy"]
    assert client.post(f"api/studies/{second}/cancel", json={}).status_code == 400

    summary = client.get(f"api/studies/{second}/summary").json()
    assert summary["models"] == list(study.models)
    assert [line["label"] for line in summary["lines"]] == [x.label for x in study.glance()]
    compared = client.get(f"compare?study={second}&study={second}").text
    assert compared.count(summary["lines"][0]["cells"][study.models[0]]) >= 2
    assert not Checker(compared).problems
    assert client.get(f"compare?study={second}").status_code == 400
    assert client.get(f"compare?study={second}&study=none").status_code == 404

    assert client.post(f"api/studies/{second}/resume", json={}).status_code == 200
    resumed = ended(second)
    assert resumed["state"] == "complete"
    assert all(entry["resumed"] for entry in resumed["finished"])


def test_given_studies_are_read_only_and_a_training_is_not_said_to_run(tmp_path):
    step = tmp_path / "run" / "step-00000002"
    step.mkdir(parents=True)
    (step / "study.json").touch()
    given = tmp_path / "given"
    given.mkdir()
    (given / "study.json").write_text('{"format": 2, "header": {"keys": []}, "entries": {}}')
    studies = studies_in(tmp_path)  # of a folder that holds them
    assert studies == [given, step.parent]
    assert list(map(studies_in, studies)) == [[given], [step.parent]]
    server = Server(Settings(tmp_path / "workspace", studies=studies))
    listed = asyncio.run(server.library.studies())
    states = {s["name"]: (s["state"], s["resumable"]) for s in listed}
    assert states == {"given": ("complete", False), "run": ("watched", False)}


def test_a_study_that_another_process_measures_is_not_interrupted(tmp_path):
    folder = tmp_path / "given"
    folder.mkdir()
    (folder / "study.json").write_text('{"format": 2, "header": {}, "entries": {}}')
    library = Server(Settings(tmp_path / "workspace", studies=[folder])).library
    lock = lock_folder(folder, "out")
    assert asyncio.run(library.state("given"))["state"] == "running elsewhere"
    os.close(lock)
    assert asyncio.run(library.state("given"))["state"] == "interrupted"


def _until(condition, seconds=120):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return
        time.sleep(0.2)
    raise AssertionError("the condition never held")


ENDLESS, THREE = partial(time.sleep, 600), partial(sum, (1, 2))


@pytest.mark.usefixtures("forked_processes")
def test_drawing_without_end_is_one_sentence_and_the_process_can_be_ended(tmp_path):
    async def ask():
        renderer = Renderer(longest=0.3)
        endless = renderer._of(tmp_path, ENDLESS, draws=True)
        others = [renderer._of(tmp_path, THREE, draws=True) for _ in range(2)]
        answers = await asyncio.gather(endless, *others, return_exceptions=True)
        assert "must be shown within 0.3 s" in str(answers[0])
        assert answers[1:] == [3, 3]  # those that waited have lost nothing
        last = asyncio.ensure_future(renderer._of(tmp_path, ENDLESS))
        await asyncio.sleep(0.1)
        renderer.close()
        with pytest.raises((InputError, asyncio.CancelledError)):
            await asyncio.wait_for(last, 30)

    asyncio.run(ask())


@pytest.mark.usefixtures("forked_processes")
def test_numbers_wait_for_no_drawing_and_a_full_queue_refuses(tmp_path):
    async def ask():
        renderer = Renderer()
        drawings = [
            asyncio.ensure_future(
                renderer._of(tmp_path, partial(time.sleep, 600 + i), draws=True)
            )
            for i in range(12)
        ]
        await asyncio.sleep(0.2)
        again = renderer._of(tmp_path, partial(time.sleep, 603), draws=True)
        drawings.append(asyncio.ensure_future(again))  # shares the one that waits
        begin = time.monotonic()
        assert await renderer._of(tmp_path, THREE) == 3
        assert time.monotonic() - begin < 30
        with pytest.raises(HTTPException) as refused:
            await renderer._of(tmp_path, partial(time.sleep, 700), draws=True)
        assert refused.value.status_code == 503
        assert refused.value.headers == {"retry-after": "3"}
        for task in [*drawings, *renderer._running.values()]:
            task.cancel()
        renderer.close()

    asyncio.run(ask())


def _given(folder, number):
    for i in range(number):
        (folder / f"given-{i}").mkdir(parents=True)
        text = '{"format": 2, "header": {"keys": []}, "entries": {}}'
        (folder / f"given-{i}" / "study.json").write_text(text)
    return [folder / f"given-{i}" for i in range(number)]


def test_only_what_has_changed_is_read_again_and_names_stay(tmp_path, monkeypatch):
    read = []
    monkeypatch.setattr(
        listing, "stored_state", lambda folder: read.append(folder) or stored_state(folder)
    )
    folders = _given(tmp_path / "a", 5) + _given(tmp_path / "b", 5)  # with the same names
    library = Server(Settings(tmp_path / "workspace", studies=folders)).library

    async def ask():
        first = await library.listing.entries()
        assert len({entry["name"] for entry in first}) == 10
        assert sorted(read) == sorted(folders)
        await asyncio.gather(*(library.listing.entries() for _ in range(60)))
        names = {await library.listing.folder(e["name"]): e["name"] for e in first}
        shutil.rmtree(folders[0])
        (folders[6] / "study.json").write_text("{")
        second = {entry["name"]: entry["state"] for entry in await library.listing.entries()}
        assert sorted(read[10:]) == sorted([folders[0], folders[6]])
        assert second.keys() == {*names.values()}
        assert second[names[folders[6]]] == second[names[folders[0]]] == "unreadable"
        assert await library.listing.folder(names[folders[0]]) is None
        assert second[names[folders[7]]] == "complete"

    asyncio.run(ask())


def test_a_page_is_stored_if_this_user_and_this_version_wrote_it_after_the_results(tmp_path):
    (folder,) = _given(tmp_path, 1)
    page = folder / "report.html"
    assert stored_page(folder) is None
    page.write_text(f"<meta {script_hashes()}>")
    assert stored_page(folder) == page
    page.chmod(0o646)  # others can write it
    assert stored_page(folder) is None
    page.chmod(0o644)
    later = page.stat().st_mtime_ns + 10**6
    os.utime(folder / "study.json", ns=(later, later))  # measured since
    assert stored_page(folder) is None
    os.utime(page, ns=(later, later))
    assert stored_page(folder) == page
    page.write_text("<meta 'sha256-of another version'>")
    os.utime(page, ns=(later, later))
    assert stored_page(folder) is None
    page.unlink()
    page.symlink_to(folder / "study.json")
    assert stored_page(folder) is None


def test_a_token_that_others_can_read_or_wrote_is_replaced(tmp_path):
    (tmp_path / "w").mkdir()
    planted = tmp_path / "w" / ".visprism-token"
    planted.write_text("a" * 32)
    token = Settings(tmp_path / "w").token
    assert token != "a" * 32
    assert planted.stat().st_mode & 0o077 == 0
    assert Settings(tmp_path / "w").token == token
