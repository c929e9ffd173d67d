"""Laws of the page's script, in a real browser: tables sort, blocks are marked, models hide."""

import base64
import hashlib
import json
import re
import shutil
import subprocess
from html import unescape

import pytest

from visprism.report.tables import MINUS

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
OPTIONS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run "
    "--disable-background-networking --disable-component-update --disable-sync "
    "--disable-extensions"
)

# Uses the page as a reader would, and writes down what it shows.
PROBE = """
  const all = (selector) => [...document.querySelectorAll(selector)];
  const table = document.querySelector("table.sortable");
  const heads = [...table.tHead.rows[0].cells];
  const at = heads.findIndex((head) => head.dataset.name === "norm");
  const column = () => [...table.tBodies[0].rows].map((row) => row.cells[at].textContent);
  const seen = { sorted: [column()], states: [] };
  for (let i = 0; i < 3; i++) {
    heads[at].querySelector("button").click();
    seen.sorted.push(column());
    seen.states.push(heads.map((head) => head.getAttribute("aria-sort")));
  }
  const marked = () => all("svg .marked").map((node) =>
    [node.closest("[data-model]").dataset.model, node.dataset.block]);
  document.querySelector('[data-model="b"] [data-block="conv1"]')
    .dispatchEvent(new MouseEvent("click", { bubbles: true }));
  seen.clicked = marked();
  seen.rows = all("tr.marked").map((row) =>
    [row.closest("table").dataset.model, row.cells[0].textContent]);
  const select = document.getElementById("block");
  seen.chosen = [select.selectedOptions[0].dataset.model, select.value];
  document.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape" }));
  seen.escaped = marked();
  select.selectedIndex = 3;
  select.dispatchEvent(new Event("change"));
  seen.selected = marked();
  const visible = (model) =>
    all(`[data-model="${model}"]`).some((node) => !node.classList.contains("off"));
  const box = document.querySelector('input[data-show="a"]');
  box.click();
  seen.hidden = [visible("a"), visible("b")];
  const [axis] = all("svg .off .shared");
  seen.axis = [axis.closest(".off"), axis].map((node) => getComputedStyle(node).visibility);
  document.querySelector('input[data-show="b"]').click();
  seen.last = visible("b");
  document.querySelector("svg [data-tip]").dispatchEvent(
    new PointerEvent("pointermove", { bubbles: true, clientX: 5, clientY: 5 }));
  seen.tip = document.getElementById("tip").textContent;
  const term = document.querySelector("a.term");
  term.dispatchEvent(new FocusEvent("focusin", { bubbles: true }));
  seen.term = [term.dataset.tip, document.getElementById("tip").textContent];
  const more = () => all(".answers .more").map((row) => row.hidden);
  const expand = document.querySelector(".answers .expand");
  const states = () => [expand.getAttribute("aria-expanded"), expand.textContent, more()];
  seen.measures = [states()];
  expand.click();
  seen.measures.push(states());
  expand.click();
  seen.measures.push(states());
  let saved = null;
  URL.createObjectURL = (blob) => { saved = blob; return "#"; };
  document.querySelector("figure[data-stem] .tool").click();
  seen.buttons = all("button.tool").length;
  saved.text().then((text) => {
    const svg = new DOMParser().parseFromString(text, "image/svg+xml");
    const there = new Set([...svg.querySelectorAll("[id]")].map((node) => node.id));
    const used = [...svg.querySelectorAll("use")].map((u) => u.getAttribute("href").slice(1));
    seen.download = {
      name: svg.documentElement.localName,
      uses: used.length,
      missing: used.filter((name) => !there.has(name)).length,
    };
    const pre = document.createElement("pre");
    pre.id = "seen";
    pre.textContent = JSON.stringify(seen);
    document.body.append(pre);
  });
"""


def dom_with(probe, path, anchor=""):
    """The page as a browser has it after a further script."""
    page = path.read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(probe.encode()).digest()).decode()
    page = page.replace("script-src ", f"script-src 'sha256-{digest}' ")
    page = page.replace("</body>", f"<script>{probe}</script></body>")
    path.write_text(page, encoding="utf-8")
    command = [
        CHROMIUM,
        *OPTIONS.split(),
        f"--user-data-dir={path.parent / 'user'}",
        "--virtual-time-budget=5000",
        "--dump-dom",
        path.as_uri() + anchor,
    ]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=True
    ).stdout


@pytest.fixture
def seen(study, tmp_path):
    if CHROMIUM is None:
        pytest.skip("needs a browser: chromium is not on the path")
    study.to_html(tmp_path / "page.html")
    dom = dom_with(PROBE, tmp_path / "page.html")
    return json.loads(unescape(re.search(r'<pre id="seen">(.*?)</pre>', dom, re.DOTALL)[1]))


def test_an_address_shows_its_section(study, tmp_path):
    if CHROMIUM is None:
        pytest.skip("needs a browser: chromium is not on the path")
    study.to_html(tmp_path / "page.html")
    probe = """
      addEventListener("load", () => setTimeout(() => {
        document.body.dataset.top =
          document.getElementById("test-gaps-title").getBoundingClientRect().top;
      }, 1000));  // of virtual time, which passes also where nothing is painted
    """
    dom = dom_with(probe, tmp_path / "page.html", "#test-gaps-title")
    assert 0 <= float(re.search(r'data-top="([^"]+)"', dom)[1]) < 600  # of the window


def numbers(texts):
    return [float(text.replace(MINUS, "-")) for text in texts]


def test_a_reader_sorts_marks_hides_and_downloads(seen):
    before, up, down, after = map(numbers, seen["sorted"])
    assert up == sorted(before) != before
    assert down == before  # the norms fall with depth
    assert after == before
    states = [[s for s in state if s != "none"] for state in seen["states"]]
    assert states == [["ascending"], ["descending"], []]

    # A click on a block marks it in every figure and table of its model, and only there.
    assert seen["clicked"] == [["b", "conv1"]] * 2
    assert seen["rows"] == [["b", "conv1"]]
    assert seen["chosen"] == ["b", "conv1"]
    assert seen["escaped"] == []
    assert seen["selected"] == [["a", "attn2"]] * 2

    assert seen["hidden"] == [False, True]
    assert seen["axis"] == ["hidden", "visible"]  # the model that is left shares it
    assert seen["last"]  # the last model cannot be hidden
    assert seen["tip"].startswith("stem · conv · ")

    assert seen["term"][0] == seen["term"][1] != ""  # the keyboard's focus explains a term
    folded = ["false", "1 more measure", [True]]
    assert seen["measures"] == [folded, ["true", "Fewer measures", [False]], folded]

    assert seen["download"]["name"] == "svg"
    assert seen["download"]["uses"] > 10
    assert seen["download"]["missing"] == 0
