"""The app in a browser: forms, live panels, reload, two tabs, and a server that is killed."""

import signal
import subprocess
import sys
import time
from pathlib import Path
from shutil import which

import pytest
from accessibility import Checker

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

CHROMIUM = next(
    filter(None, map(which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine"),
]
SECONDS = 120_000  # milliseconds, of the slowest step on a busy machine


class App:
    """A server in a process, on a port that stays the same when it is started again."""

    def __init__(self, folder):
        self.folder, self.port = folder, 0
        self.start()

    def start(self):
        command = [sys.executable, "-m", "visprism", "view", "--out", str(self.folder)]
        self.process = subprocess.Popen(
            [*command, "--port", str(self.port)], stdout=subprocess.PIPE, text=True
        )
        self.address = self.process.stdout.readline().split()[1]
        self.port = int(self.address.split(":")[2].split("/")[0])
        _until_it_answers(self.address)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()


def _until_it_answers(address):
    from urllib.error import URLError
    from urllib.request import urlopen

    for _ in range(600):
        try:
            urlopen(address).close()
        except URLError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError(f"{address} does not answer")


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    app = App(tmp_path_factory.mktemp("browser") / "studies")
    yield app
    app.process.send_signal(signal.SIGINT)
    app.process.wait(30)
    app.process.stdout.close()


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        yield browser
        browser.close()


@pytest.fixture
def page(browser):
    """A page on which no script fails and nothing is refused by the policy."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(SECONDS)
    problems = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda line: problems.append(line.text) if "Policy" in line.text else 0)
    yield page
    page.close()
    assert not problems


def start_study(page, app, title):
    """Four analyses of 16 images, of which the last takes long enough to be stopped."""
    page.goto(app.address)
    page.wait_for_selector("form[data-ready]")
    page.fill("[name=limit]", "16")
    page.click("text=Choose analyses")
    for box in page.locator("input[name=analysis]:checked").all():
        box.uncheck()
    for name in ("anatomy", "variance", "landscape"):
        page.check(f"input[name=analysis][value={name}]")
    page.click("text=Uploads and settings")
    page.fill("[name=title]", title)
    page.click("button[type=submit]")
    page.wait_for_selector("#study")


def state(page):
    return page.inner_text("#state")


def wait_for_state(page, text):
    page.wait_for_function(
        "text => document.querySelector('#state').textContent === text", arg=text
    )


def test_the_form_as_it_is_plans_starts_resumes_and_completes(app, page):
    """Nothing is changed: analyses that do not apply are skipped, and nothing fails."""
    page.goto(app.address)
    page.wait_for_selector("form[data-ready]")
    page.click("#plan")
    page.wait_for_selector("#planned pre")
    assert "frequency-noise" in page.inner_text("#planned pre")
    page.click("button[type=submit]")
    page.wait_for_selector("#study")
    page.wait_for_function(
        "() => document.querySelector('#finished ul').textContent.includes('anatomy of')"
    )
    page.click("#cancel")
    wait_for_state(page, "canceled")
    page.click("#resume")
    page.wait_for_function(
        "() => ['complete', 'failed'].includes(document.querySelector('#state').textContent)"
    )
    assert state(page) == "complete", page.inner_text("#reason")
    assert "stored before" in page.text_content("#finished ul")
    assert ": failed," not in page.text_content("#finished ul")
    page.frame_locator("#report").locator("figure svg").first.wait_for()
    page.goto(app.address)
    assert page.inner_text("#studies li .state") == "complete"
    page.wait_for_selector("#studies .headline >> text=accuracy (%)")
    page.wait_for_function("() => document.querySelector('.thumbnail').naturalWidth > 0")


def test_a_study_survives_a_server_that_is_killed_and_ends_with_one_that_is_stopped(app, page):
    start_study(page, app, "killed")
    page.wait_for_selector("#finished:not([hidden])")
    children = _children_of(app.process.pid)
    assert children
    app.kill()
    _wait_for_the_end_of(children)
    app.start()
    page.reload()
    wait_for_state(page, "interrupted")
    page.click("#resume")
    page.wait_for_function(
        "() => document.querySelector('#finished ul').textContent.includes('stored before')"
    )
    children = _children_of(app.process.pid)
    app.process.terminate()
    app.process.wait(5)
    app.process.stdout.close()
    _wait_for_the_end_of(children)
    app.start()


def test_the_reason_of_a_study_that_failed_is_shown_after_a_restart(app, page):
    page.goto(app.address)
    page.wait_for_selector("form[data-ready]")
    page.locator(".model input").first.fill("timm:no_such_model")
    page.click("button[type=submit]")
    page.wait_for_selector("#study")
    wait_for_state(page, "failed")
    assert "unknown model" in page.inner_text("#reason")
    app.kill()
    app.start()
    page.goto(app.address)
    page.wait_for_selector("#studies .failed >> text=unknown model")


def test_a_click_on_a_patch_shows_its_attention(app, page):
    page.goto(f"{app.address}live")
    page.wait_for_selector("#panels[data-ready]")
    page.wait_for_selector("#heads canvas")
    layer = "() => document.querySelector('#heads canvas').toDataURL()"
    before = page.evaluate(layer)
    page.click("#patch", position={"x": 10, "y": 10})
    page.wait_for_function(
        "() => document.querySelector('#patch-name').textContent.includes('row 1,')"
    )
    clicked = page.evaluate(layer)
    assert clicked != before
    page.focus("#patch")
    page.keyboard.press("ArrowRight")
    page.wait_for_function(
        "before => document.querySelector('#heads canvas').toDataURL() !== before", arg=clicked
    )
    assert page.locator("#heads canvas").count() == 16
    assert page.locator("#rollouts canvas").count() == 2


def test_an_ablated_block_changes_logits_and_spectrum(app, page):
    page.goto(f"{app.address}live")
    page.wait_for_selector("#panels[data-ready]")
    page.wait_for_selector("#ablation .answer li")
    answers = "() => document.querySelector('#ablation .answers-of').innerText"
    before = page.evaluate(answers)
    page.click("#blocks button[value='blocks.0.attn']")
    page.click("#blocks button[value='blocks.1.mlp']")
    page.wait_for_function(f"before => ({answers})() !== before", arg=before)
    page.wait_for_selector("#ablation polyline.before")
    page.click("#restore")
    page.wait_for_function(f"before => ({answers})() === before", arg=before)


def test_sliders_and_the_receptive_field_answer(app, page):
    page.goto(f"{app.address}live")
    page.wait_for_selector("#panels[data-ready]")
    for box, name, value in (
        ("#frequency_noise", "rms", "0.4"),
        ("#corruption", "severity", "5"),
        ("#landscape", "distance", "1"),
    ):
        page.wait_for_selector(f"{box} .answer li")
        answers = f"() => document.querySelector('{box} .answers-of').innerText"
        before = page.evaluate(answers)
        page.fill(f"{box} [name={name}]", value)
        page.wait_for_function(f"before => ({answers})() !== before", arg=before)
    page.wait_for_function("() => document.querySelector('#field-name').textContent")
    page.click("#center", position={"x": 5, "y": 5})
    page.wait_for_function(
        "() => document.querySelector('#field-name').textContent.includes('row 0, column 0')"
    )


def test_an_uploaded_image_is_shown(app, page, tmp_path):
    from PIL import Image

    Image.new("RGB", (64, 64), (200, 30, 60)).save(tmp_path / "red <b>.png")
    page.goto(f"{app.address}live")
    page.wait_for_selector("#panels[data-ready]")
    page.set_input_files("#images", tmp_path / "red <b>.png")
    page.wait_for_function("() => document.querySelectorAll('#strip img').length === 1")


def test_pages_fit_a_narrow_window_and_start_is_in_view(app, page):
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 800})
        page.goto(app.address)
        page.wait_for_selector("form[data-ready]")
        assert page.locator("button[type=submit]").bounding_box()["y"] < 760
    for address, ready in (
        (app.address, "form[data-ready]"),
        (f"{app.address}live", "[data-ready]"),
    ):
        page.goto(address)
        page.wait_for_selector(ready)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert not Checker(page.content()).problems  # what scripts made included


def _wait_for_the_end_of(children):
    end = time.monotonic() + 60
    while any(map(_runs, children)):
        assert time.monotonic() < end, "a process outlived its server"
        time.sleep(0.2)


def _children_of(server):
    """Folders in /proc of the processes that a server started, for studies and for pages."""
    children = []
    for folder in Path("/proc").glob("[0-9]*"):
        if _state_and_parent(folder)[1] == str(server):
            children.append(folder)
    return children


def _runs(folder):
    return _state_and_parent(folder)[0] not in ("", "Z")  # or nobody has waited for its end


def _state_and_parent(folder):
    try:
        words = (folder / "stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has ended
        return "", ""
    return words[0], words[1]
