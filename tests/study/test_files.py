"""Laws of saved studies: what is loaded is what was saved, and what is broken is named."""

import json
import time
from contextlib import suppress
from dataclasses import replace
from hashlib import blake2b
from statistics import median
from xml.etree import ElementTree

import numpy as np
import pytest

from visprism import Failure, InputError, Study, examine
from visprism.cli import main
from visprism.report.rows import DASH


@pytest.fixture
def study(net, loader, brightness):
    made = examine({"a": net(0), "b": net(1)}, loader, analyses=[brightness])
    return replace(made, failures=(Failure("a", "hessian", "no gradient", "skipped"),))


def test_a_saved_study_is_loaded_bit_for_bit(study, tmp_path):
    study.save(tmp_path / "s")
    loaded = Study.load(tmp_path / "s")
    assert loaded.models == study.models
    assert loaded.entries == study.entries
    assert loaded.failures == study.failures
    origins = [[r.provenance for e in s.entries for r in e.results] for s in (study, loaded)]
    assert origins[0] == origins[1]
    assert loaded.lines() == study.lines()
    assert loaded.to_markdown() == study.to_markdown()


def test_in_a_notebook_a_study_is_its_glance_as_a_table_and_what_is_missing(net, loader):
    models = {"<one>": net(), "other": net(1)}
    study = examine(models, loader, analyses=["calibration", "attention"])
    table, _, rest = study._repr_html_().partition("<p>")
    head, *rows = ([cell.text for cell in row] for row in ElementTree.fromstring(table))
    assert head[1:3] == list(models)
    for line, (label, *cells) in zip(study.glance(), rows, strict=True):
        assert label == line.label
        assert cells[:2] == [line.cells.get(name, DASH) for name in models]
    assert rest.count("not measured: attention of") == 2


def test_a_result_that_is_missing_or_of_an_absent_plug_in_is_a_failure_beside_the_rest(
    study, tmp_path
):
    study.save(tmp_path)
    (result_file,) = tmp_path.glob("results/a-brightness-test-brightness-*.npz")
    index = tmp_path / "study.json"
    before = blake2b(result_file.read_bytes(), digest_size=16).hexdigest()
    with np.load(result_file) as stored:
        values = {name: stored[name] for name in stored.files}
    np.savez(result_file, **(values | {"__type__": np.array("absent")}))
    after = blake2b(result_file.read_bytes(), digest_size=16).hexdigest()
    index.write_text(index.read_text().replace(before, after))
    reason = "absent is a result of a plug-in that is not installed"
    loaded = Study.load(tmp_path)
    assert loaded.models == ("a", "b")
    assert loaded.entries == study.entries[1:]
    assert loaded.failures == (*study.failures, Failure("a", "brightness", reason))
    assert reason in loaded.to_markdown()
    result_file.unlink()
    assert "npz is missing. Run the study again" in Study.load(tmp_path).failures[-1].reason


def test_an_index_that_is_damaged_or_none_is_one_sentence(study, tmp_path):
    study.save(tmp_path)
    fewer, other = (json.loads((tmp_path / "study.json").read_text()) for _ in range(2))
    fewer["entries"].popitem()
    other["header"].update(budget="x", weights=[1])
    damaged = json.dumps(fewer), json.dumps(other)
    for content in (*damaged, "[" * 200_000, "[]", "3", "", '{"format": 1}', "\x00"):
        (tmp_path / "study.json").write_text(content)
        with pytest.raises(InputError, match=r"study\.json (must be the index|has format 1)"):
            Study.load(tmp_path)


def test_the_page_has_the_speed_of_a_model_on_this_machine(net, loader, tmp_path):
    study = examine({"a": net()}, loader, analyses="variance", out=tmp_path)
    speed = Study.load(tmp_path).header["speed"]["a"]
    assert all(0 < seconds < 10 for seconds in speed["latency"])
    assert min(speed["throughput"]) > 0
    study.to_html(tmp_path / "x.html")
    middle, low, high = (1e3 * of(speed["latency"]) for of in (median, min, max))
    text = f"{middle:.3g} ({low:.3g} to {high:.3g}) ms for one image"
    assert text in (tmp_path / "x.html").read_text()


def test_files_that_somebody_else_put_beside_the_figures_stay(net, loader, tmp_path):
    study = examine(net(), loader, analyses="variance")
    study.write_files(tmp_path)
    ours = {path.name for path in (tmp_path / "figures").iterdir()}
    figures = tmp_path / "figures"
    (figures / "drafts").mkdir()
    others = figures / "mine.png", figures / "drafts" / "a.txt"
    for path in (*others, figures / "earlier.png"):
        path.write_text(path.name)
    with (figures / ".visprism").open("a") as file:
        file.write("earlier.png\n")
    study.write_files(tmp_path)
    assert {path.name for path in figures.iterdir()} == {*ours, "mine.png", "drafts"}
    assert [path.read_text() for path in others] == ["mine.png", "a.txt"]


@pytest.mark.parametrize("name", ["notes.txt", "photos", "report.html", "study.md"])
def test_a_folder_with_other_files_is_left_alone(net, loader, tmp_path, name):
    (tmp_path / name).touch()
    for write in (
        lambda: examine(net(), loader, analyses="variance", out=tmp_path),
        lambda: main(["merge", str(tmp_path / "a"), "--out", str(tmp_path)]),
    ):
        result = None
        with suppress(InputError):
            result = write()
        assert result in (None, 2)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("twice", ["keys", "files"])
def test_an_index_that_repeats_an_entry_is_refused(net, loader, tmp_path, twice):
    """One result that is listed 20,000 times would be compared 20,000 times."""
    examine(net(), loader, analyses="variance", out=tmp_path)
    path = tmp_path / "study.json"
    index = json.loads(path.read_text("utf-8"))
    if twice == "keys":
        index["header"]["keys"] *= 20_000
    else:
        (entry,) = index["entries"].values()
        index["entries"] = {f"k{i}": entry for i in range(20_000)}
        index["header"]["keys"] = [*index["entries"]]
    path.write_text(json.dumps(index), "utf-8")
    begin = time.monotonic()
    with pytest.raises(InputError, match="entries are missing or repeated"):
        Study.load(tmp_path)
    assert time.monotonic() - begin < 5


def test_a_result_that_is_a_link_out_of_the_study_is_not_read(net, loader, tmp_path):
    examine(net(), loader, analyses="variance", out=tmp_path / "s")
    for file in [*(tmp_path / "s" / "results").glob("*.npz")]:
        file.rename(tmp_path / file.name)
        file.symlink_to(tmp_path / file.name)
    study = Study.load(tmp_path / "s")
    assert not study.entries
    (failure,) = study.failures
    assert "is a link to a file outside of the study" in failure.reason
