"""The app in a browser: forms, live panels, reload, two tabs, and a server that is killed."""

import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from shutil import which

import pytest
import torch
from accessibility import Checker
from torch import nn

import visprism as vp
from visprism import ANALYSES, Monitor
from visprism.core.options import options_of

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

    def __init__(self, folder, *studies):
        self.folder, self.studies, self.port = folder, studies, 0
        self.start()

    def start(self):
        command = [sys.executable, "-m", "visprism", "view", *map(str, self.studies)]
        command += ["--out", str(self.folder)]
        self.process = subprocess.Popen(
            [*command, "--port", str(self.port)], stdout=subprocess.PIPE, text=True
        )
        self.address = self.process.stdout.readline().split()[1]
        self.port = int(self.address.split(":")[2].split("/")[0])

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()


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
    """The preset of the loss without one of its analyses, long enough to be stopped."""
    page.goto(app.address)
    page.wait_for_selector("form[data-ready]")
    page.check("[name=preset][value=loss]")
    page.click("text=Choose analyses")
    page.uncheck("input[value=sharpness]")
    assert page.locator("[name=preset]:checked").count() == 0
    page.click("text=Uploads and settings")
    page.fill("[name=title]", title)
    page.click("button[type=submit]")
    page.wait_for_selector("#study")


def wait_for_state(page, text):
    page.wait_for_function(
        "text => document.querySelector('#state').textContent === text", arg=text
    )


def test_the_form_as_it_is_plans_starts_resumes_and_completes(app, page):
    """Nothing is changed: analyses that do not apply are skipped, and nothing fails."""
    page.goto(app.address)
    page.wait_for_selector("form[data-ready]")
    page.click("button[type=submit]")
    page.wait_for_selector("#study")
    page.wait_for_selector("#plan-lines pre")  # is visible, beside the button that cancels
    assert "shape-bias" in page.inner_text("#plan-lines pre")
    assert page.is_visible("#cancel")
    page.wait_for_function(
        "() => document.querySelector('#finished ul').textContent.includes('anatomy of')"
    )
    page.click("#cancel")
    wait_for_state(page, "canceled")
    page.click("#resume")
    page.wait_for_function(
        "() => ['complete', 'failed'].includes(document.querySelector('#state').textContent)"
    )
    assert page.inner_text("#state") == "complete", page.inner_text("#reason")
    assert "stored before" in page.text_content("#finished ul")
    assert ": failed," not in page.text_content("#finished ul")
    page.frame_locator("#report").locator("figure svg").first.wait_for()
    page.goto(app.address)
    assert page.inner_text("#studies li .state") == "complete"
    page.wait_for_selector("#studies .headline >> text=accuracy (%)")


def test_studies_outlive_their_server_and_processes_do_not(app, page):
    page.goto(app.address)
    page.wait_for_selector("form[data-ready]")
    page.locator(".model input").first.fill("resnet20?num_classes=-1")
    page.click("button[type=submit]")
    page.wait_for_selector("#study")
    wait_for_state(page, "failed")
    assert "num_classes must be" in page.inner_text("#reason")

    start_study(page, app, "killed")
    page.wait_for_selector("#finished:not([hidden])")
    children = _children_of(app.process.pid)
    assert children
    app.kill()
    _wait_for_the_end_of(children)
    app.start()
    page.goto(app.address)
    page.wait_for_selector("#studies .failed >> text=num_classes must be")
    page.click("text=killed")
    wait_for_state(page, "interrupted")
    page.click("#resume")
    page.wait_for_function(
        "() => document.querySelector('#finished ul').textContent.includes('stored before')"
    )
    children = _children_of(app.process.pid)
    app.process.terminate()
    app.process.wait(30)
    app.process.stdout.close()
    _wait_for_the_end_of(children)
    app.start()


def open_live(page, app):
    page.goto(f"{app.address}live")
    page.wait_for_selector("#panels[data-ready]")
    return "#{} .side{}".format


def waits_for_other(page, selector, action, of="innerText"):
    """What an element shows is another after an action."""
    page.wait_for_selector(selector)
    shown = f"() => document.querySelector({selector!r}).{of}"
    before = page.evaluate(shown)
    action()
    page.wait_for_function(f"before => ({shown})() !== before", arg=before)
    return before


def test_a_training_is_shown_while_it_runs(page, tmp_path):
    """Curves grow with each measurement, and an alarm is a sentence."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    model = nn.Sequential(*layers, nn.Linear(8, 4))
    run = tmp_path / "run"
    monitor = Monitor([torch.rand(8, 3, 8, 8)], "variance", every=1, share=1.0, out=run)
    monitor.step(model, 1, metrics={"loss": 1.5})
    app = App(tmp_path / "studies", run)
    try:
        page.goto(f"{app.address}study/run")
        wait_for_state(page, "step 1")
        report = page.frame_locator("#report")
        report.locator("#variance").wait_for()
        assert report.locator("text=alarm after step").count() == 0
        with torch.no_grad():
            model[0].bias[:4] = -100
        monitor.step(model, 2, metrics={"loss": 0.5})
        wait_for_state(page, "step 2")
        report.locator("text=run, alarm after step 2").wait_for()
        page.wait_for_selector("#drawing", state="hidden")
        curve = report.locator("[data-tip^='Loss']").first
        assert curve.get_attribute("data-tip").endswith("0.5 after step 2")
    finally:
        app.kill()


def test_maps_lie_over_the_image_of_the_model_that_has_attention(app, page):
    side = open_live(page, app)
    vit, resnet = side("attention", 0), side("attention", 1)
    page.wait_for_selector(f"{vit} .heads canvas")
    assert page.locator(f"{vit} .heads canvas").count() == 4 * (4 + 1)  # heads and their mean
    assert page.locator(f"{vit} .rollouts canvas").count() == 2
    assert page.locator(f"{resnet} canvas").count() == 0
    assert page.locator("#class-query").is_hidden()  # there is no class token
    assert page.locator(f"{vit} .heads span").count() == 0  # and no weight off the patches

    over = f"{vit} .stage canvas"
    click = partial(page.click, f"{vit} .stage", position={"x": 10, "y": 10})
    waits_for_other(page, over, click, "toDataURL()")
    assert "patch row 1, column 1 of 8 x 8" in page.inner_text(f"{vit} > p")
    page.focus(f"{vit} .stage")
    waits_for_other(page, over, partial(page.keyboard.press, "ArrowRight"), "toDataURL()")
    assert "patch row 1, column 2 of 8 x 8" in page.inner_text(f"{vit} > p")
    head = partial(page.click, f"{vit} button[value='blocks.0.attn, head 2']")
    waits_for_other(page, over, head, "toDataURL()")
    page.fill("#attention [name=opacity]", "0.25")
    assert page.locator(over).evaluate("canvas => canvas.style.opacity") == "0.25"


def test_an_ablated_block_changes_its_model_only(app, page):
    side = open_live(page, app)
    vit, resnet = side("ablation", 0), side("ablation", 1)
    page.wait_for_selector(f"{resnet} .answer")
    page.wait_for_selector(f"{resnet} text >> text=layer1.0")  # blocks have names on the axis
    other = page.inner_text(f"{resnet} .answers-of")
    click = partial(page.click, f"{vit} button[value='blocks.0.attn']")
    before = waits_for_other(page, f"{vit} .answers-of", click)
    page.wait_for_selector(f"{vit} polyline.before", state="attached")
    assert page.inner_text(f"{resnet} .answers-of") == other
    page.click(f"{vit} >> text=Restore all")
    shown = f"before => document.querySelector('{vit} .answers-of').innerText === before"
    page.wait_for_function(shown, arg=before)


def test_controls_change_both_models(app, page):
    side = open_live(page, app)
    page.wait_for_selector(f"{side('prediction', 1)} >> text=true class")
    for number in (0, 1):
        box = f"{side('prediction', number)} .answers-of"
        page.select_option("[name=change]", "none")
        page.wait_for_selector(f"{box} .answer")
        noise = partial(page.select_option, "[name=change]", "frequency_noise")
        waits_for_other(page, box, noise, "innerHTML")
        fog = partial(page.select_option, "[name=change]", "fog")
        waits_for_other(page, box, fog, "innerHTML")
        page.fill("[name=distance]", "0")
        page.wait_for_selector("#curves polyline.side1", state="attached")
        move = partial(page.fill, "[name=distance]", "1")
        waits_for_other(page, f"{side('landscape', number)} .answers-of", move)
    assert page.locator("#curves polyline").count() == 2
    field = f"{side('receptive', 1)} > p"
    page.wait_for_function(f"() => document.querySelector('{field}').textContent")
    page.click(f"{side('receptive', 0)} .stage", position={"x": 5, "y": 5})
    for number in (0, 1):
        page.wait_for_selector(f"{side('receptive', number)} > p >> text=row 1, column 1 of")


def test_a_dropped_image_is_shown_and_a_wrong_name_leaves_no_picture(app, page):
    open_live(page, app)
    page.evaluate("""async () => {
        const canvas = document.createElement("canvas");
        canvas.width = canvas.height = 64;
        const context = canvas.getContext("2d");
        context.fillStyle = "red";
        const dataTransfer = new DataTransfer();
        for (const name of ["red <b>.png", "犬.png", "猫.png"]) {
            context.fillRect(0, 0, 64, 16 * dataTransfer.items.length);
            const blob = await new Promise((done) => canvas.toBlob(done));
            dataTransfer.items.add(new File([blob], name));
        }
        dataTransfer.items.add(new File(["words"], "notes.txt"));
        document.body.dispatchEvent(new DragEvent("drop", { dataTransfer, bubbles: true }));
    }""")
    page.wait_for_function("() => document.querySelectorAll('#strip img').length === 3")
    page.wait_for_selector("#notice >> text=1 of 4 files are left out: an upload must be an")
    page.wait_for_selector("#curves >> text=there are no labels")
    page.locator("#subject [name=model]").first.fill("resnet21")
    page.locator("#subject [name=model]").last.fill("")
    page.click("#subject [type=submit]")
    page.wait_for_selector("#about .failed >> text=resnet21")
    assert page.locator("#panels").is_hidden()
    assert page.locator("#panels img, #panels canvas").count() == 0
    folder = {"items": [], "files": [str(app.folder)], "dragOperationsMask": 1}
    session = page.context.new_cdp_session(page)
    for kind in ("dragEnter", "drop"):
        event = {"type": kind, "x": 9, "y": 9, "data": folder}
        session.send("Input.dispatchDragEvent", event)
    page.wait_for_selector("#notice >> text=not the folder")


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


def test_options_show_the_values_of_the_effort_until_they_are_changed(app, page):
    page.goto(app.address)
    page.wait_for_selector("form[data-ready]")
    page.click("text=Choose analyses")
    page.click("text=Uploads and settings")
    page.locator(".one", has_text="adversarial").locator("summary").click()
    steps, restarts = (
        page.locator(f"[data-analysis=adversarial][data-option={name}]")
        for name in ("steps", "restarts")
    )
    restarts.fill("3")
    shown = {}
    for effort in ("quick", "standard", "full"):
        page.select_option("[name=effort]", effort)
        shown[effort] = steps.input_value()
        assert restarts.input_value() == "3"
    by_effort = options_of(ANALYSES["adversarial"])["steps"].info.by_effort
    assert shown == {e: str(by_effort.get(e, 10)) for e in shown}


def test_many_models_are_drawn_at_any_two_quantities(page, tmp_path):
    deep = {f"depth {n}": vp.load_model(f"vit_pico_patch4_32?depth={n}") for n in range(1, 5)}
    models = deep | {"few tokens": vp.load_model("vit_pico_patch4_32?depth=5&patch_size=8")}
    study = vp.examine(models, [torch.rand(2, 3, 32, 32)], analyses="anatomy")
    study.to_html(tmp_path / "page.html")
    page.goto((tmp_path / "page.html").as_uri())
    page.click("#scatter summary")
    across = page.locator("#scatter select").last
    places = {}
    for quantity in ("Parameters", "MACs per image"):
        across.select_option(label=quantity)
        assert page.locator("#scatter svg").get_attribute("aria-label").endswith(quantity)
        circles = page.locator("#scatter circle").all()
        across_of = {
            circle.text_content().partition(": ")[0]: float(circle.get_attribute("cx"))
            for circle in circles
        }
        places[quantity] = [across_of[name] for name in models]
    assert places["Parameters"] == sorted(places["Parameters"])  # deeper ones are larger
    assert places["MACs per image"] != sorted(places["MACs per image"])


def _wait_for_the_end_of(children):
    end = time.monotonic() + 60
    while any(map(_runs, children)):
        assert time.monotonic() < end, "a process outlived its server"
        time.sleep(0.2)


def _children_of(server):
    """Folders in /proc of the processes that a server started, for studies and for pages."""
    threads = Path(f"/proc/{server}/task").glob("*/children")
    return [Path("/proc", child) for path in threads for child in path.read_text().split()]


def _runs(folder):
    with suppress(OSError):  # it has ended
        return (folder / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False
