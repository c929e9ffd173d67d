"""A study at a glance: its lines say what the rows of the table say."""

import pytest
from results_by_hand import MAKERS

from visprism import Answer
from visprism.estimates import questions
from visprism.estimates.answers import DISAGREE
from visprism.estimates.questions import QUESTIONS
from visprism.report.glance import MIXED, TIE, UNKNOWN, glance_of, glance_text, sentences_of
from visprism.report.rows import DASH, Difference, Row

MODELS = "cnn", "vit"


def row(question, values, *, half=1.0, difference=None, missing="", **answer):
    cells = {
        name: Answer(question.text, "q", float(value), value - half, value + half, **answer)
        for name, value in values.items()
    }
    differences = {}
    if difference is not None:
        low, high = map(float, difference)
        between = (low + high) / 2
        differences = {MODELS: Difference(between, low, high, missing=missing)}
    return Row(question.text, "q", answer.get("unit", ""), cells, differences)


NAN = float("nan")


@pytest.mark.parametrize(
    ("question", "difference", "expected"),
    [
        (questions.ACCURACY, (1, 3), "vit"),
        (questions.ACCURACY, (-3, -1), "cnn"),
        (questions.CALIBRATION, (1, 3), "cnn"),  # lower is better
        (questions.CALIBRATION, (-1, 3), TIE),
        (questions.CALIBRATION, (NAN, NAN), UNKNOWN),
    ],
)
def test_the_better_model_is_that_of_a_significant_difference(question, difference, expected):
    (line,) = glance_of([row(question, {"cnn": 1, "vit": 2}, difference=difference)], MODELS)
    assert line.better == expected


def test_without_a_paired_difference_intervals_that_do_not_overlap_decide():
    for gap, expected in ((3.0, "cnn"), (1.0, TIE)):
        (line,) = glance_of([row(questions.CALIBRATION, {"cnn": 1, "vit": 1 + gap})], MODELS)
        assert line.better == expected


def test_measures_of_flatness_that_disagree_are_mixed():
    flatter = row(questions.FLATNESS, {"cnn": 1, "vit": 5}, difference=(3, 5))
    sharper = row(questions.FLATNESS, {"cnn": 5, "vit": 1}, difference=(-5, -3))
    for other, expected in ((sharper, MIXED), (flatter, "cnn")):
        (line,) = glance_of([flatter, other], MODELS)
        assert line.better == expected


def test_the_measure_that_decides_is_shown_and_named():
    tie = row(questions.FLATNESS, {"cnn": 100, "vit": 95}, difference=(-30, 20))
    won = row(questions.FLATNESS, {"cnn": 10, "vit": 50}, difference=(30, 50), unit="nats")
    (line,) = lines = glance_of([tie, won], MODELS)
    assert line.label == "curvature of the loss: q (nats)"
    assert line.cells == {"cnn": "10.0 ± 1.0", "vit": "50.0 ± 1.0"}
    assert line.better == "cnn"
    assert line.rows == [won, tie]
    assert sentences_of(lines, MODELS) == [
        "By Hessian eigenvalues the loss of cnn is flatter: 10.0 ± 1.0 against 50.0 ± 1.0."
    ]
    of_hessian = row(questions.FLATNESS, {"cnn": 1}, id="hessian-summary.ape")
    assert glance_of([of_hessian], MODELS)[0].label == questions.FLATNESS.label


def test_of_three_models_the_better_one_beats_both():
    for third, expected in ((9.0, ("c", "")), (5.5, (TIE, "of b, c"))):
        values = {"a": 1.0, "b": 5.0, "c": third}
        (line,) = glance_of([row(questions.ACCURACY, values)], list(values))
        assert (line.better, line.reason) == expected


def test_a_model_with_random_weights_has_no_answer_about_correct_predictions():
    rows = [
        row(questions.ACCURACY, {"cnn": 80, "vit": 10}, difference=(-72, -68)),
        row(questions.FILTERS, {"cnn": -1, "vit": -1}, reading="low-pass"),
    ]
    accuracy, filters = glance_of([r.of_trained(["vit"]) for r in rows], MODELS)
    assert set(accuracy.cells) == {"cnn"}
    assert accuracy.better == ""
    assert set(filters.cells) == set(MODELS)
    assert len(glance_of([r.of_trained(MODELS) for r in rows], MODELS)) == 1


def test_words_name_the_part_and_what_its_numbers_mean():
    both, mixed = "attention blocks", f"undecided ({DISAGREE})"
    rows = [
        row(questions.FILTERS, {"cnn": -1}, subject="conv blocks", reading="low-pass"),
        row(questions.FILTERS, {"vit": -1}, subject=both, reading=mixed),
    ]
    (line,) = glance_of(rows, MODELS)
    assert line.cells == {"cnn": "conv low-pass", "vit": "attention mixed"}
    assert line.better == ""
    assert glance_text([line], MODELS)[0].split() == list(MODELS)


def test_a_table_has_a_column_for_each_of_few_models_and_a_line_for_each_of_many():
    few = glance_text(
        glance_of([row(questions.ACCURACY, {"cnn": 0.5}, half=0.01, unit="%")], MODELS), MODELS
    )
    assert few[1].split() == ["accuracy", "(%)", "50.0", "±", "1.0", DASH]
    models = [f"m{i}" for i in range(6)]
    rows = [row(questions.ACCURACY, {name: 3.0 * i for i, name in enumerate(models)})]
    header, *lines, _ = glance_text(glance_of(rows, models), models)
    assert header.split() == ["accuracy"]
    assert [line.split()[0] for line in lines] == models[::-1]
    assert [line.endswith("*") for line in lines] == [True] + [False] * 5


def test_the_answers_of_every_result_belong_to_a_declared_question():
    asked = {answer.question for make in MAKERS.values() for answer in make().answers()}
    assert len(asked) > 15
    assert asked <= set(QUESTIONS)
