"""Laws of exports: Markdown and JSON say what the table says."""

import json
import re

import numpy as np
import pytest

from visprism.study.exports import json_of


def test_markdown_has_the_rows_of_the_table(study):
    lines = [line for line in study.to_markdown().splitlines() if line.startswith("|")]
    cells = [[c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    assert cells[0] == ["Question", "a", "b", "Difference"]
    for row, values in zip(study.table(), cells[2:], strict=True):
        assert values[0] == f"{row.question} ({row.quantity})"
        for model, value in zip("ab", values[1:3], strict=True):
            answer = row.cells[model]
            assert value.replace("\\", "") == str(answer)
        assert values[3].replace("\\", "") == row.difference_text()


def test_names_cannot_break_out_of_the_markdown_table(make):
    text = make.study_of("a|b\n# c", "<b>*d*").to_markdown()
    assert "\n# c" not in text
    assert "<b>" not in text
    head = next(line for line in text.splitlines() if line.startswith("| Question"))
    assert len(re.split(r"(?<!\\)\|", head)) == 6  # four cells and two ends


def test_json_has_the_numbers_of_the_table(study):
    content = json.loads(json_of(study))
    assert content["models"] == ["a", "b"]
    for row, stored in zip(study.table(), content["questions"], strict=True):
        assert (stored["question"], stored["quantity"]) == (row.question, row.quantity)
        for model, answer in row.cells.items():
            values = stored["answers"][model]
            assert values["value"] == answer.value
            low = None if np.isnan(answer.low) else answer.low
            assert values["low"] == low
    (difference,) = content["questions"][1]["differences"]
    assert (difference["first"], difference["second"]) == ("a", "b")
    assert difference["value"] == study.table()[1].difference.value
    assert difference["significant"] is True


@pytest.mark.usefixtures("undrawn")
def test_a_difference_in_three_images_has_no_interval_in_any_export(
    study, make, monkeypatch, tmp_path
):
    monkeypatch.setattr(type(make.norms()), "units", 3)
    study.to_html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "<small>no interval: fewer than 32 images</small>" in page
    for text in (page, study.to_markdown(), "\n".join(study.lines())):
        assert "no interval: fewer than 32 images" in text
        assert "not significant" not in text
    (difference,) = json.loads(json_of(study))["questions"][1]["differences"]
    assert (difference["low"], difference["significant"]) == (None, None)


def test_json_has_findings_with_codes_failures_versions_and_options(study):
    content = json.loads(json_of(study))
    entry = content["analyses"][1]
    assert (entry["analysis"], entry["models"]) == ("test-norms", ["a"])
    assert entry["options"] == {"steps": 5, "bands": [0.5, 1.0]}
    assert entry["results"] == ["test-norms", "test-gaps"]
    codes = [(f["code"], f["severity"]) for f in entry["findings"]]
    assert ("VP108", "note") in codes
    assert content["failures"][0]["reason"] == "the model has no attention"
    assert content["versions"] == {"visprism": "0.2", "torch": "2.6", "python": "3.11"}
    assert (content["seed"], content["seconds"]) == (7, 12.25)
