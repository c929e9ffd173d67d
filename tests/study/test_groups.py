"""Groups: seeds of one architecture as one row, with intervals over seeds."""

import json

import numpy as np
import pytest
from scipy import stats

from visprism import Answer, Study, examine
from visprism.analyses.predictions.calibration import CalibrationMetrics
from visprism.cli import main
from visprism.estimates import questions
from visprism.report.glance import NOT_FOUND, glance_of
from visprism.report.groups import group_rows
from visprism.report.rows import Row


def accuracies(**values):
    cells = {
        name: Answer(
            questions.ACCURACY.text, "accuracy", value, value - 0.01, value + 0.01, "%"
        )
        for name, value in values.items()
    }
    return Row(questions.ACCURACY.text, "accuracy", "%", cells)


assert CalibrationMetrics  # it declares that more accuracy is better
GROUPS = {"cnn": ["a", "b", "c"], "vit": ["d", "e", "f"]}
VALUES = {"a": 0.80, "b": 0.81, "c": 0.79, "d": 0.90, "e": 0.915, "f": 0.885}


def test_the_interval_of_a_group_is_students_over_its_seeds():
    (row,) = group_rows([accuracies(**VALUES)], GROUPS)
    cnn = row.cells["cnn"]
    expected = stats.t.interval(0.95, 2, 0.80, stats.sem([0.80, 0.81, 0.79]))
    assert (cnn.value, cnn.low, cnn.high) == pytest.approx((0.80, *expected))
    assert cnn.over == "seeds"


def test_equally_many_seeds_are_paired_and_others_are_compared_by_welch():
    (row,) = group_rows([accuracies(**VALUES)], GROUPS)
    first, second = ([VALUES[n] for n in GROUPS[g]] for g in GROUPS)
    paired = stats.ttest_rel(second, first)
    difference = row.differences["cnn", "vit"]
    assert difference.p_different == pytest.approx(paired.pvalue)
    ends = paired.confidence_interval(0.95)
    assert (difference.low, difference.high) == pytest.approx((ends.low, ends.high))
    fewer = {"cnn": ["a", "b", "c"], "vit": ["d", "e"]}
    (row,) = group_rows([accuracies(**VALUES)], fewer)
    welch = stats.ttest_ind([0.90, 0.915], first, equal_var=False)
    assert row.differences["cnn", "vit"].value == pytest.approx(0.1075)
    assert (welch.pvalue < 0.05) == row.differences["cnn", "vit"].significant


def test_the_words_are_the_words_of_models():
    (line,) = glance_of(group_rows([accuracies(**VALUES)], GROUPS), list(GROUPS))
    assert line.better == "vit"
    close = VALUES | {"d": 0.81, "e": 0.80, "f": 0.80}
    (line,) = glance_of(group_rows([accuracies(**close)], GROUPS), list(GROUPS))
    assert line.better.startswith(NOT_FOUND)


def test_one_seed_has_no_interval():
    groups = {"cnn": ["a", "b"], "one": ["d"]}
    (row,) = group_rows([accuracies(a=0.8, b=0.81, d=0.9)], groups)
    assert np.isnan(row.cells["one"].low)
    assert row.differences["cnn", "one"].missing == "a single seed"


def test_a_mapping_of_sequences_is_a_study_of_groups(net, loader, tmp_path):
    models = {"cnn": [net(0), net(1)], "vit": [net(2), net(3)]}
    study = examine(models, loader, analyses=["variance", "calibration"], out=tmp_path)
    assert study.models == ("cnn 1", "cnn 2", "vit 1", "vit 2")
    assert study.compared == ("cnn", "vit")
    assert "cnn 1" not in str(study)
    loaded = Study.load(tmp_path)
    assert loaded.groups == {"cnn": ["cnn 1", "cnn 2"], "vit": ["vit 1", "vit 2"]}
    loaded.write_files(tmp_path)
    content = json.loads((tmp_path / "results.json").read_text())
    first = content["questions of groups"][0]
    assert set(first["answers"]) == {"cnn", "vit"}
    page = (tmp_path / "report.html").read_text()
    assert "cnn (2 seeds)" in page
    assert "Intervals cover other trained seeds" in page


def test_a_label_of_several_models_is_a_group_on_the_command_line(tmp_path, capsys):
    models = ["cnn=resnet20.shapes,resnet20?pretrained=False", "vit=vit_pico_patch4_32.shapes"]
    options = ["--data", "shapes", "--limit", "40", "--analyses", "calibration,anatomy"]
    assert main(["examine", *models, *options, "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[0].split()[:2] == ["cnn", "vit"]
    assert main(["examine", str(tmp_path / "study.yaml"), "--out", str(tmp_path)]) == 0
