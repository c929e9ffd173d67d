"""The page: complete, self-contained, safe, and the same every time."""

import json
import re
from dataclasses import dataclass, replace
from html.parser import HTMLParser

import numpy as np
import pytest

from visprism.core.errors import InputError
from visprism.figures.losses import LossScale
from visprism.report import SECTIONS, Examination, file_name, render
from visprism.report.surfaces import surface
from visprism.results.base import Result
from visprism.results.landscape import Landscape

EVIL = '<script>alert("1")</script> & --> <b>'
VOID = {"meta", "br", "hr", "img", "link", "input"}


class Reader(HTMLParser):
    """What a browser makes of a page: its tags, its text, and whether all that opens closes."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.attributes, self.text, self.open = [], [], "", []
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


@pytest.fixture(scope="module")
def page(examinations, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    render(examinations, path, title="Two networks", command="visprism examine shallow deep")
    return path.read_text(encoding="utf-8")


def renamed(examination, name):
    """The same examination with a name in every place where a user's string can stand."""
    tables = (
        r.with_provenance(model=name, data=name, command=name) for r in examination.tables()
    )
    costs, _, ends, *_ = tables
    named = replace(costs, block=np.array([name] * len(costs)))
    return Examination(name, named, (ends,), notes=(name,))


# What stands on it.


def test_every_analysis_has_its_section_figure_and_table(page, examinations):
    reader = Reader(page)
    tables = [section for section in SECTIONS if section.columns]
    for section in SECTIONS:
        assert ("id", section.stem) in reader.attributes
        assert ("href", f"#{section.stem}") in reader.attributes
        assert section.title in reader.text
    figures = sum(len(section.figures) for section in SECTIONS)
    assert reader.tags.count("svg") == 1 + figures + 2  # with the overview and two tallies
    assert page.count('class="sortable"') == len(tables) * len(examinations)


def test_models_are_compared_side_by_side(page):
    assert re.search(r'<th scope="col">shallow</th><th scope="col">deep</th>', page)
    assert re.search(r"By kind</th><td>[^<]*5 conv[^<]*</td><td>[^<]*7 conv", page)


def test_the_verdicts_stand_above_and_in_their_section(page, examinations):
    for finding in (f for each in examinations for f in each.findings()):
        for sentence in finding.sentences():
            words = sentence.split(" (")[0][1:]  # the first letter is a capital
            assert page.count(words) >= 2


def test_every_fact_of_the_provenance_is_told(page, examinations):
    for fact, value in vars(examinations[0].costs.provenance).items():
        assert fact.replace("_", " ") in page
        assert isinstance(value, tuple) or str(value) in page


def test_blocks_that_are_not_on_a_grid_are_named(page):
    assert re.search(r"Not on a grid</th><td>[\w.]+</td>", page)


def test_notes_are_printed(examinations, tmp_path):
    noted = replace(examinations[0], notes=("The head was replaced.",))
    render([noted], tmp_path / "x.html")
    assert "<li>The head was replaced.</li>" in (tmp_path / "x.html").read_text()


def test_links_to_raw_numbers_are_relative_and_named_as_the_files_are(page, examinations):
    links = re.findall(r'href="(results/[^"]+)"', page)
    names = [file_name(e.name, result) for e in examinations for result in e.tables()]
    assert sorted(links) == sorted(f"results/{name}.csv" for name in names)
    assert len(set(links)) == len(links)


def test_a_surface_can_be_turned_and_has_the_heights_of_the_still_figure(page, examinations):
    surfaces = [json.loads(v) for n, v in Reader(page).attributes if n == "data-surface"]
    assert len(surfaces) == len(examinations)
    for drawn, each in zip(surfaces, examinations, strict=True):
        (result,) = (r for r in each.results if isinstance(r, Landscape))
        scale = LossScale(5)
        np.testing.assert_allclose(drawn["height"], scale(result.table("nll", 0)), atol=1e-4)
        assert np.shape(drawn["colour"]) == (2, 2)
        assert drawn["chance"] == {"height": 0.75, "label": "log 5"}


def test_a_line_has_nothing_to_turn(examinations):
    (result,) = (r for r in examinations[0].results if isinstance(r, Landscape))
    assert surface(result.select(result.b == 0)) == ""
    assert surface(examinations[0].costs) == ""


def test_only_costs_make_a_page_too(examinations, tmp_path):
    render([replace(examinations[0], results=())], tmp_path / "x.html")
    assert Reader((tmp_path / "x.html").read_text()).tags.count("svg") == 1


# What it is made of.


def test_everything_that_opens_closes_and_no_identifier_stands_twice(page):
    reader = Reader(page)
    assert reader.open == []
    identifiers = [value for name, value in reader.attributes if name == "id"]
    assert len(set(identifiers)) == len(identifiers)


def test_every_reference_within_the_page_leads_somewhere(page):
    reader = Reader(page)
    there = {value for name, value in reader.attributes if name == "id"}
    links = {v[1:] for n, v in reader.attributes if n.endswith("href") and v.startswith("#")}
    clips = {
        re.fullmatch(r"url\(#(.*)\)", v)[1] for n, v in reader.attributes if n == "clip-path"
    }
    assert links
    assert clips
    assert links | clips <= there


def test_the_page_asks_nothing_of_the_network(page):
    assert "http:" not in page
    assert "https:" not in page
    assert not re.search(r"@import|url\((?!#)|<link|<img|<iframe|\bsrc=", page)


def test_the_same_examinations_give_the_same_bytes(examinations, tmp_path):
    one = replace(examinations[0], results=examinations[0].results[:3])
    for name in "ab":
        render([one], tmp_path / name, command="x")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_strings_of_a_user_are_text_and_nothing_else(examinations, tmp_path):
    clean, evil = tmp_path / "clean.html", tmp_path / "evil.html"
    render([renamed(examinations[0], "plain")], clean, title="plain", command="plain")
    render([renamed(examinations[0], EVIL)], evil, title=EVIL, command=EVIL)
    ours, theirs = Reader(clean.read_text()), Reader(evil.read_text())
    assert theirs.open == []
    assert theirs.tags.count("script") == ours.tags.count("script") == 1
    assert "b" not in theirs.tags
    assert EVIL in theirs.text


# What it refuses.


def test_no_examination_is_refused(tmp_path):
    with pytest.raises(InputError, match="at least one examined model, got none"):
        render([], tmp_path / "x.html")


def test_two_models_whose_files_would_be_the_same_are_refused(examinations, tmp_path):
    same = [replace(examinations[0], name=name) for name in ("a b", "a-b")]
    with pytest.raises(InputError, match=r"'a b', 'a-b' would write the same files; give each"):
        render(same, tmp_path / "x.html")


@dataclass(frozen=True)
class Surprise(Result):
    """A result of a plugin's own."""


def test_a_result_without_a_section_is_refused(examinations, tmp_path):
    odd = replace(examinations[0], results=(Surprise(),))
    with pytest.raises(InputError, match="no section of the report shows a Surprise; append"):
        render([odd], tmp_path / "x.html")


def test_a_tally_of_an_unknown_quantity_is_refused(examinations, tmp_path):
    tally = replace(examinations[0].tallies()[0], quantity="luck")
    odd = replace(examinations[0], results=(tally,))
    with pytest.raises(InputError, match="no section of the report shows a Tally of 'luck'"):
        render([odd], tmp_path / "x.html")
    assert list(tmp_path.iterdir()) == []
