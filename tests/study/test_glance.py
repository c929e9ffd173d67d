"""A study at a glance: its lines say what the rows of the table say."""

from dataclasses import replace

import numpy as np
import pytest
from results_by_hand import MAKERS

from visprism import Answer, Provenance, Result
from visprism.estimates import questions
from visprism.estimates.answers import DISAGREE
from visprism.estimates.questions import QUESTIONS
from visprism.report.glance import (
    MIXED,
    NOT_FOUND,
    UNKNOWN,
    glance_of,
    glance_text,
    sentences_of,
)
from visprism.report.rows import DASH, Difference, Row, comparison_rows

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
        unjudged = Difference(between, low, high, missing=missing, units=100)
        differences = {MODELS: unjudged.judged(0.02)}
    return Row(question.text, "q", answer.get("unit", ""), cells, differences)


NAN = float("nan")


@pytest.mark.parametrize(
    ("question", "difference", "expected"),
    [
        (questions.ACCURACY, (1, 3), "vit"),
        (questions.ACCURACY, (-3, -1), "cnn"),
        (questions.CALIBRATION, (1, 3), "cnn"),  # lower is better
        (questions.CALIBRATION, (-1, 3), f"{NOT_FOUND} (\N{MINUS SIGN}1.0 to +3.0)"),
        (questions.CALIBRATION, (-0.01, 0.012), "equal within 0.02 nats"),
        (questions.CALIBRATION, (NAN, NAN), UNKNOWN),
    ],
)
def test_the_interval_of_the_difference_decides_between_better_equal_and_not_found(
    question, difference, expected
):
    (line,) = glance_of([row(question, {"cnn": 1, "vit": 2}, difference=difference)], MODELS)
    assert line.better == expected


def test_at_the_stated_number_of_images_the_interval_is_as_wide_as_the_margin():
    difference = Difference(0.0, -0.06, 0.06, units=64).judged(0.01)
    assert difference.enough == pytest.approx(64 * 12**2)
    narrower = Difference(0.002, -0.003, 0.007, units=64 * 12**2).judged(0.01)
    assert narrower.equal
    assert not narrower.significant


def test_without_a_paired_difference_intervals_that_do_not_overlap_decide():
    for gap, expected in ((3.0, "cnn"), (1.0, NOT_FOUND)):
        (line,) = glance_of([row(questions.CALIBRATION, {"cnn": 1, "vit": 1 + gap})], MODELS)
        assert line.better == expected


def compared(values, names, same=()):
    """The row of made accuracies, by models in the order of names."""
    results = {}
    for name in names:
        answer = Answer(
            questions.ACCURACY.text,
            "accuracy",
            values[name].mean(),
            values[name].mean() - 0.03,
            values[name].mean() + 0.03,
            "%",
            id="calibration.accuracy",
            by_unit=values[name],
        )
        made = type("Answering", (Result,), {"answers": lambda _, a=answer: (a,)})
        results[name] = [made(provenance=Provenance())]
    return comparison_rows(results, same=same)


def outcomes(count=1000):
    """Correct predictions of five models on the same images; the first is 5 points better."""
    random = np.random.default_rng(0)
    shared = random.random(count)
    made = {f"m{i}": shared + 0.15 * random.random(count) for i in range(5)}
    return {n: 1.0 * (v < (0.9 if n == "m0" else 0.83)) for n, v in made.items()}


def test_a_permutation_of_models_or_images_changes_nothing():
    values, names = outcomes(), [f"m{i}" for i in range(5)]
    order = np.random.default_rng(1).permutation(1000)
    (line,) = glance_of(compared(values, names), names)
    assert line.better == "m0"
    assert line.best == ["m0"]
    for other in (names[::-1], [*names[2:], *names[:2]]):
        (turned,) = glance_of(compared(values, other), other)
        assert (turned.better, turned.best) == (line.better, line.best)
        assert turned.letters == line.letters
    (shuffled,) = glance_of(compared({n: v[order] for n, v in values.items()}, names), names)
    for pair, difference in line.rows[0].differences.items():
        assert shuffled.rows[0].differences[pair].p_different == difference.p_different


def test_a_third_model_leaves_the_difference_of_two_others_and_raises_its_p_value():
    values = outcomes()
    (two,), (all_five,) = compared(values, ["m0", "m1"]), compared(values, list(values))
    before, after = two.differences["m0", "m1"], all_five.differences["m0", "m1"]
    assert (before.value, before.low, before.high) == (after.value, after.low, after.high)
    assert before.p_different < after.p_different
    assert (before.pairs, after.pairs) == (1, 10)


def test_two_names_of_one_network_are_equal():
    values = outcomes() | {"again": outcomes()["m0"]}
    names = ["m0", "again"]
    (line,) = glance_of(compared(values, names, same=[("m0", "again")]), names)
    assert line.better == "equal: the same network"
    (line,) = glance_of(compared(values, names), names)  # equal outcomes of 1000 images
    assert line.better == "equal within 1 point"
    few = {name: of_model[:100] for name, of_model in values.items()}
    (line,) = glance_of(compared(few, names), names)
    assert line.better.startswith(NOT_FOUND)


def test_models_share_a_letter_unless_they_differ_significantly():
    values = outcomes()
    (line,) = glance_of(compared(values, list(values)), list(values))
    for pair, difference in line.rows[0].differences.items():
        common = set(line.letters[pair[0]]) & set(line.letters[pair[1]])
        assert bool(common) != difference.significant


def test_measures_of_flatness_that_disagree_are_mixed():
    flatter = row(questions.FLATNESS, {"cnn": 1, "vit": 5}, difference=(3, 5))
    sharper = row(questions.FLATNESS, {"cnn": 5, "vit": 1}, difference=(-5, -3))
    for other, expected in ((sharper, MIXED), (flatter, "cnn")):
        (line,) = glance_of([flatter, other], MODELS)
        assert line.better == expected


def test_flatness_has_no_order_unless_all_its_measures_agree():
    unclear = row(questions.FLATNESS, {"cnn": 100, "vit": 95}, difference=(-30, 20))
    won = row(questions.FLATNESS, {"cnn": 10, "vit": 50}, difference=(30, 50))
    other = replace(unclear, quantity="other measure")
    (line,) = glance_of([won, other], MODELS)
    assert (line.better, line.reason) == (MIXED, "no conclusion: the measures disagree")
    assert sentences_of([line], MODELS) == []
    (line,) = lines = glance_of([won, replace(won, quantity="other measure")], MODELS)
    assert line.better == "cnn"
    assert "10.0 ± 1.0" in sentences_of(lines, MODELS)[0]
    of_hessian = row(questions.FLATNESS, {"cnn": 1}, id="hessian-summary.ape")
    assert glance_of([of_hessian], MODELS)[0].label == questions.FLATNESS.label


def test_of_three_models_the_better_one_beats_both():
    for third, expected in ((9.0, "c"), (5.5, f"b, c: {NOT_FOUND}")):
        values = {"a": 1.0, "b": 5.0, "c": third}
        (line,) = glance_of([row(questions.ACCURACY, values)], list(values))
        assert line.better == expected


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
    assert [line.split()[-1] for line in lines] == list("abcdef")


def test_the_answers_of_every_result_belong_to_a_declared_question():
    asked = {answer.question for make in MAKERS.values() for answer in make().answers()}
    assert len(asked) > 15
    assert asked <= set(QUESTIONS)
