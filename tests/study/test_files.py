"""Laws of saved studies: what is loaded is what was saved, and what is broken is named."""

import json
from dataclasses import replace
from hashlib import blake2b

import numpy as np
import pytest

from visprism import Failure, Finished, InputError, Study, examine


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


def test_a_saved_study_is_resumed_without_measuring(net, loader, brightness, study, tmp_path):
    study.save(tmp_path)
    events = []
    models = {"b": net(1), "a": net(0)}
    resumed = examine(
        models, loader, analyses=[brightness], out=tmp_path, listener=events.append
    )
    assert [e.resumed for e in events if isinstance(e, Finished)] == [True, True]
    loaded = Study.load(tmp_path)
    assert (loaded.models, loaded.entries) == (resumed.models, resumed.entries)
    assert loaded.header["seconds"] == resumed.header["seconds"]


def test_an_interrupted_study_is_loaded_as_far_as_it_goes(study, tmp_path):
    study.save(tmp_path)
    index = json.loads((tmp_path / "study.json").read_text())
    del index["header"]["keys"]
    (tmp_path / "study.json").write_text(json.dumps(index))
    assert Study.load(tmp_path).entries == study.entries


@pytest.fixture
def result_file(study, tmp_path):
    """The file of the result of the first model."""
    study.save(tmp_path)
    (path,) = tmp_path.glob("results/a-brightness-test-brightness-*.npz")
    return path


def test_a_missing_or_damaged_result_is_a_failure_beside_the_rest(study, result_file, tmp_path):
    result_file.write_bytes(b"PK junk")
    loaded = Study.load(tmp_path)
    assert loaded.entries == study.entries[1:]
    assert "test-brightness" in loaded.failures[-1].reason
    assert "was changed since it was measured" in loaded.failures[-1].reason
    result_file.unlink()
    assert "npz is missing. Run the study again" in Study.load(tmp_path).failures[-1].reason


def test_a_result_of_a_plug_in_that_is_not_installed_is_a_failure_beside_the_rest(
    study, result_file, tmp_path
):
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


@pytest.mark.parametrize(
    "damage",
    [
        lambda index: index["entries"].popitem(),
        lambda index: index["header"].update(failures=[{"reason": "x"}]),
        lambda index: index["header"].update(budget="x", weights=[1]),
        lambda index: next(iter(index["entries"].values())).update(models=[]),
        lambda index: index.update(format="2"),
        lambda index: index.update(header=None),
    ],
)
def test_a_damaged_index_is_named(study, tmp_path, damage):
    study.save(tmp_path)
    index = json.loads((tmp_path / "study.json").read_text())
    damage(index)
    (tmp_path / "study.json").write_text(json.dumps(index))
    with pytest.raises(InputError, match=r"study\.json must be the index of a study"):
        Study.load(tmp_path)


def test_an_index_that_is_no_index_is_one_sentence(study, tmp_path):
    for content in ("[" * 200_000, "[]", "3", "", '{"format": 1}', "\x00"):
        (tmp_path / "study.json").write_text(content)
        with pytest.raises(InputError, match=r"study\.json (must be the index|has format 1)"):
            Study.load(tmp_path)


def test_the_page_has_the_speed_of_a_model_on_this_machine(net, loader, tmp_path):
    study = examine({"a": net()}, loader, analyses="variance", out=tmp_path)
    speed = Study.load(tmp_path).header["speed"]["a"]
    assert 0 < speed["latency"] < 10
    assert speed["throughput"] > 0
    study.to_html(tmp_path / "x.html")
    assert f"{1e3 * speed['latency']:.3g} ms for one image" in (tmp_path / "x.html").read_text()


def test_files_that_somebody_else_put_beside_the_figures_stay(net, loader, tmp_path):
    study = examine(net(), loader, analyses="variance")
    study.write_files(tmp_path)
    ours = {path.name for path in (tmp_path / "figures").iterdir()}
    (tmp_path / "figures" / "mine.png").write_bytes(b"mine")
    (tmp_path / "figures" / "drafts").mkdir()
    (tmp_path / "figures" / "drafts" / "a.txt").write_text("draft")
    with (tmp_path / "figures" / ".visprism").open("a") as file:
        file.write("earlier.png\n")
    (tmp_path / "figures" / "earlier.png").write_bytes(b"of an earlier study")
    study.write_files(tmp_path)
    names = {path.name for path in (tmp_path / "figures").iterdir()}
    assert names == {*ours, "mine.png", "drafts"}
    assert (tmp_path / "figures" / "mine.png").read_bytes() == b"mine"
    assert (tmp_path / "figures" / "drafts" / "a.txt").read_text() == "draft"
