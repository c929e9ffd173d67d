"""Laws of the page: complete, self-contained, safe, small, and the same every time."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch

import visprism.report
import visprism.study.files
from visprism import Study, examine, load_model
from visprism.report.drawings import rendered
from visprism.study.files import write_files, write_report
from visprism.study.report_content import content_of

EVIL = '<script>alert("1")</script> & --> <b>'
VOID = {"meta", "br", "hr", "img", "link", "input", "wbr"}
SCRIPT = Path(visprism.report.__file__).parent / "templates" / "script.js"


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
        self.text += f"{data} "

    def values(self, name):
        return [value for key, value in self.attributes if key == name]


@pytest.fixture(scope="module")
def page(make, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    make.study_of().to_html(path)
    return path.read_text(encoding="utf-8")


def test_the_page_opens_with_the_table_and_every_answer_links_to_its_section(page):
    table = page[page.index('<table class="answers"') : page.index("</table>")]
    assert page.index('<table class="answers"') < page.index("<section")
    assert "Do norms fall?" in table
    assert "\N{MINUS SIGN}0.25 [\N{MINUS SIGN}0.75,\N{NO-BREAK SPACE}0.25]" in table
    links = re.findall(r'<a href="#([^"]+)"', table)
    assert len(links) == 6
    assert set(links) <= set(Reader(page).values("id"))


STEMS = ["test-norms", "test-norms-count", "test-norms-test-gaps"]
STEMS += ["test-norms-test-gaps-between-models"]


def test_every_section_has_its_title_text_findings_and_figures(page):
    reader = Reader(page)
    for text in ("Norms of blocks", "Gaps between blocks", "Each point is a block."):
        assert text in reader.text
    assert reader.values("data-stem") == STEMS


@pytest.mark.usefixtures("undrawn")
def test_a_page_has_no_words_about_what_it_does_not_show(make, tmp_path):
    study = make.study_of()
    replace(study, entries=study.entries[:1]).to_html(tmp_path / "x.html")
    page = (tmp_path / "x.html").read_text()
    assert "Each bar is a block." in page  # of a section that has no figure, of its table
    assert 'id="terms"' not in page
    assert 'href="#terms"' not in page
    study.to_html(tmp_path / "x.html")
    page = (tmp_path / "x.html").read_text()
    assert "Each point is a block." not in page  # of a figure that is not drawn
    assert 'id="terms"' in page
    assert 'href="#terms"' in page


@pytest.mark.usefixtures("undrawn")
def test_many_models_are_rows_of_a_table_that_can_be_sorted(tmp_path):
    specs = {f"net{n}": "vit_pico_patch4_32?img_size=8&depth=1" for n in range(1, 6)}
    models = {name: load_model(spec) for name, spec in specs.items()}
    study = examine(models, [torch.rand(2, 3, 8, 8)], analyses=["anatomy", "variance"])
    study.to_html(tmp_path / "x.html")
    page = (tmp_path / "x.html").read_text()
    assert '<div class="card"' not in page
    assert '<table class="glance sortable"' in page
    headings = re.findall(r'<th scope="col"( class="t")?>(\w+)', page)
    assert headings.index(("", "Parameters")) < headings.index((' class="t"', "Variance"))
    assert '<details id="scatter">' in page
    assert Reader(page).open == []


def test_the_appendix_lists_codes_what_was_not_measured_versions_data_and_options(page):
    assert '<a class="code" href="#VP108">VP108</a>' in page
    appendix = page[page.index('<dt id="VP108"') :]
    assert appendix.index("Dead channels") < appendix.index('href="#test-norms"')
    text = " ".join(Reader(page).text.split())
    assert "hessian : failed , RuntimeError: out of memory" in text
    assert "test-gaps (b): the model has no attention" in text
    manifest = page[page.index('<section id="manifest"') : page.index("</main>")]
    manifest = " ".join(Reader(manifest).text.split())
    for fact in ("visprism 0.2", "torch 2.6", "Data folder:cats", "Split test", "Seed 7"):
        assert fact in manifest
    assert "steps = 5 steps = 5, bands = 0.5, 1" in manifest  # changed, then all
    assert "a: 1.5, b: 2.5, a and b: 0.2" in manifest


@pytest.mark.usefixtures("undrawn")
def test_tables_beside_the_page_are_linked_and_no_others(study, tmp_path, page):
    assert "results/" not in page
    study.save(tmp_path)
    study.to_html(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    links = re.findall(r'href="(results/[^"]+)"', page)
    assert sorted(links) == sorted(f"results/{f.name}" for f in tmp_path.glob("results/*.csv"))
    assert len(links) == len(set(links)) == 5


def test_everything_that_opens_closes_and_every_reference_leads_somewhere(page):
    reader = Reader(page)
    assert reader.open == []
    links = {v[1:] for v in reader.values("href") if v.startswith("#")}
    clips = {re.fullmatch(r"url\(#(.*)\)", v)[1] for v in reader.values("clip-path")}
    labels = set(reader.values("aria-labelledby"))
    assert links
    assert clips
    assert links | clips | labels <= set(reader.values("id"))


def test_the_page_asks_nothing_of_the_network_and_forbids_it(page):
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)[1]
    assert policy.startswith("default-src 'none'; ")
    assert re.search(r"script-src 'sha256-[\w+/=]{44}'", policy)
    assert "connect-src" not in policy
    rest = page.replace("http://www.w3.org/2000/svg", "")  # a name, not an address
    assert "http:" not in rest
    assert "https:" not in rest
    assert not re.search(r"@import|url\((?!#)|<link|<img|<iframe|\bsrc=", page)
    assert len(SCRIPT.read_bytes()) <= 15_000


def test_equal_studies_give_equal_bytes(make, tmp_path, page):
    write_report(make.study_of(), tmp_path / "again.html")
    assert (tmp_path / "again.html").read_text(encoding="utf-8") == page


def test_names_and_reasons_are_text_and_nothing_else(make, tmp_path):
    study = make.study_of(EVIL, EVIL + "2", EVIL)
    blocks = make.norms(EVIL, blocks=(EVIL, "a\nb", "</script>"))
    first, *others = study.entries[1:]
    study = replace(study, entries=(replace(first, results=(blocks,)), *others))
    write_report(study, tmp_path / "evil.html")
    reader = Reader((tmp_path / "evil.html").read_text(encoding="utf-8"))
    assert reader.open == []
    assert reader.tags.count("script") == 1
    assert "b" not in reader.tags
    assert EVIL in reader.text
    assert EVIL in reader.values("data-model")
    assert EVIL in reader.values("data-block")


def test_a_model_of_fifty_blocks_and_a_thousand_rows_stays_within_the_budget(
    study, make, tmp_path
):
    rng = np.random.default_rng(0)
    names = [f"layers.{i}.block.{j}" for i in range(5) for j in range(10)]
    numbers = {"norm": rng.normal(size=50), "count": rng.integers(10**9, size=50)}
    norms = replace(make.norms(), block=np.array(names), depth=np.linspace(0, 1, 50), **numbers)
    results = norms, make.gaps().select(rng.integers(3, size=1000))
    entry = replace(study.entries[1], models=("a",), results=results)
    write_report(replace(study, models=("a",), entries=(entry,)), tmp_path / "x.html")
    # A part of the budget of 6 MB for two models: a study has more analyses than these two.
    assert (tmp_path / "x.html").stat().st_size < 6_000_000 / 10


def test_several_processes_draw_the_same_bytes_as_one(study):
    content = content_of(study)
    one, two = (
        [(d.stem, files) for d, files in rendered(content, ["svg"], processes=n)]
        for n in (1, 2)
    )
    assert len(one) == 4
    assert one == two


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("part", ["json_of", "page_html"])
def test_a_failure_leaves_what_is_complete_and_no_part_of_a_page(
    study, tmp_path, monkeypatch, part
):
    def broken(*_):
        raise RuntimeError("disk")

    monkeypatch.setattr(visprism.study.files, part, broken)
    with pytest.raises(RuntimeError, match="disk"):
        write_files(study, tmp_path)
    numbers = {"study.md", "results.json"} if part == "page_html" else {"study.md"}
    assert {path.name for path in tmp_path.iterdir()} == numbers


def test_a_study_without_results_has_a_page(tmp_path):
    Study(("a",), ()).to_html(tmp_path / "x.html")
    reader = Reader((tmp_path / "x.html").read_text(encoding="utf-8"))
    assert reader.open == []
    assert "table" in reader.tags  # of the manifest
