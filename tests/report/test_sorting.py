"""The script of the page, run in a real browser: tables sort, and say so."""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from html import unescape

import pytest

from visprism.report import render
from visprism.report.tables import DASH, MINUS

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
OPTIONS = (
    "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-extensions"
)

# Clicks headings and writes down what stands in their columns.
PROBE = """
<pre id="seen"></pre>
<script>
  const table = (section) => document.querySelector(`#${section} table.sortable`);
  const heads = (section) => [...table(section).tHead.rows[0].cells];
  const at = (section, words) => heads(section).findIndex((h) => h.textContent === words);
  const column = (section, i) =>
    [...table(section).tBodies[0].rows].map((row) => row.cells[i].textContent);
  const click = (section, i) => heads(section)[i].querySelector("button").click();

  const seen = [];
  const parameters = at("anatomy", "Parameters");
  const note = () => seen.push({
    numbers: column("anatomy", 0),
    values: column("anatomy", parameters),
    states: heads("anatomy").map((head) => head.getAttribute("aria-sort")),
  });
  note();
  for (let i = 0; i < 3; i++) { click("anatomy", parameters); note(); }
  for (const words of ["Δ log amplitude", "Change across the block"]) {
    const i = at("high-frequency", words);
    click("high-frequency", i);
    seen.push(column("high-frequency", i));
  }
  document.getElementById("seen").textContent = JSON.stringify(seen);
</script>
</body>"""

UNITS = {"k": 1e3, "M": 1e6}


def number(text):
    digits, _, unit = text.partition("\N{NO-BREAK SPACE}")
    return float(digits) * UNITS.get(unit, 1)


@pytest.fixture(scope="module")
def seen(examinations, tmp_path_factory):
    if CHROMIUM is None:
        pytest.skip("needs a browser: chromium is not on the path")
    folder = tmp_path_factory.mktemp("browser")
    one = replace(examinations[0], results=examinations[0].results[1:2])
    render([one], folder / "page.html")
    page = (folder / "page.html").read_text(encoding="utf-8").replace("</body>", PROBE)
    (folder / "page.html").write_text(page, encoding="utf-8")
    url = (folder / "page.html").as_uri()
    command = [
        CHROMIUM,
        *OPTIONS.split(),
        f"--user-data-dir={folder / 'user'}",
        "--dump-dom",
        url,
    ]
    dom = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    return json.loads(unescape(re.search(r'<pre id="seen">(.*?)</pre>', dom, re.DOTALL)[1]))


def test_the_first_click_sorts_upwards_by_number_the_second_downwards(seen):
    before, up, down = seen[:3]
    values = [number(text) for text in before["values"]]
    assert [number(text) for text in up["values"]] == sorted(values) != values
    assert [number(text) for text in down["values"]] == sorted(values, reverse=True)


def test_the_third_click_brings_back_forward_order(seen):
    before, up, _, after = seen[:4]
    assert (
        after["numbers"]
        == before["numbers"]
        == [str(i + 1) for i in range(len(after["numbers"]))]
    )
    assert up["numbers"] != before["numbers"]


def test_screen_readers_are_told_which_column_is_sorted_and_how(seen):
    states = [[state for state in each["states"] if state != "none"] for each in seen[:4]]
    assert states == [[], ["ascending"], ["descending"], []]


def test_negative_numbers_are_numbers(seen):
    values = [float(text.replace(MINUS, "-")) for text in seen[4]]
    assert values == sorted(values)
    assert max(values) < 0


def test_unknown_numbers_stand_last(seen):
    known = [float(text.replace(MINUS, "-")) for text in seen[5] if text != DASH]
    assert known == sorted(known)
    assert seen[5][len(known) :] == [DASH] * (len(seen[5]) - len(known)) != []
