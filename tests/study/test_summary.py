"""Laws of the summary: its sentences say what the rows of the table say."""

import pytest
from results_by_hand import MAKERS

from visprism import Answer
from visprism.estimates import questions
from visprism.estimates.answers import DISAGREE
from visprism.estimates.questions import QUESTIONS, Question, place_of, question_of
from visprism.study.summary import summary_of
from visprism.study.table import Difference, Row

MODELS = "cnn", "vit"


def row(question, quantity, values, **answer):
    cells = {
        name: Answer(question.text, quantity, value, value - 0.1, value + 0.1, **answer)
        for name, value in values.items()
    }
    return Row(question.text, quantity, "", cells)


def test_a_sentence_has_the_answer_of_each_model_and_the_difference():
    accuracy = row(questions.ACCURACY, "accuracy", {"cnn": 0.5, "vit": 0.75})
    difference = {MODELS: Difference(0.25, 0.125, 0.375)}
    (sentence,) = summary_of([Row(**{**vars(accuracy), "differences": difference})], MODELS)
    assert sentence.text == (
        "cnn 0.5 [0.4, 0.6]; vit 0.75 [0.65, 0.85]; vit minus cnn: 0.25 [0.125, 0.375], "
        "significant."
    )
    assert sentence.measure == ""  # the headline says it


def test_words_come_before_numbers_and_parts_of_models_are_named():
    values = {"cnn": -1.0}
    conv = row(
        questions.FILTERS, "x of conv", values, subject="conv", measure="x", reading="low-pass"
    )
    (sentence,) = summary_of([conv], MODELS)
    assert (sentence.text, sentence.measure) == ("cnn conv: low-pass, -1 [-1.1, -0.9].", "x")
    block = row(questions.IMPORTANCE, "drop", values, subject="layer1.0")
    (sentence,) = summary_of([block], MODELS)
    assert sentence.text == "cnn: layer1.0, -1 [-1.1, -0.9]."


def test_the_largest_of_several_says_of_how_many_and_how_many_cannot_be_ablated():
    block = row(questions.IMPORTANCE, "drop", {"cnn": 0.5}, subject="layer1.0", selected=7)
    (sentence,) = summary_of([block], MODELS)
    assert sentence.text.endswith("(largest of 7).")
    block = row(
        questions.IMPORTANCE, "drop", {"cnn": 0.5}, subject="layer1.0", selected=7, left_out=2
    )
    (sentence,) = summary_of([block], MODELS)
    assert sentence.text.endswith("(largest of 7; 2 cannot be ablated).")


def test_both_numbers_stand_where_measures_disagree():
    rows = [
        row(
            questions.FILTERS, f"{measure} of attention", {"vit": value}, subject="attention",
            measure=measure, reading=f"undecided ({DISAGREE})",
        )
        for measure, value in (("to the mean", -1.0), ("to the lowest", 2.0))
    ]  # fmt: skip
    (sentence,) = summary_of(rows, MODELS)
    assert sentence.text.endswith("(the measures disagree), -1 [-1.1, -0.9] and 2 [1.9, 2.1].")
    assert sentence.measure == "to the mean, and to the lowest"


def test_variants_of_a_measure_count_once():
    rows = [
        row(questions.FLATNESS, f"APE, {v}", {"cnn": 1.0, "vit": 2.0}, variant=v)
        for v in ("NLL", "NLL + L2")
    ]
    (sentence,) = summary_of(rows, MODELS)
    assert sentence.text.startswith("cnn is flatter by 1 of 1 measures (APE)")


def test_flatness_counts_the_measures_by_the_flatter_model():
    rows = [
        row(questions.FLATNESS, name, {"cnn": 1.0, "vit": value})
        for name, value in (("a", 2.0), ("b", 3.0), ("c", 0.5), ("tie", 1.0))
    ]
    (sentence,) = summary_of(rows, MODELS)
    assert sentence.text == (
        "depends on the measure: cnn is flatter by 2 of 4 measures (a; b), vit by 1 (c), "
        "values differ by at most 5% in 1; no difference has an interval."
    )
    (sentence,) = summary_of(rows[:2], MODELS)
    assert sentence.text.startswith("cnn is flatter by 2 of 2 measures")
    (sentence,) = summary_of([row(questions.FLATNESS, "a", {"cnn": 1.0})], ("cnn",))
    assert sentence.text == "cnn 1 [0.9, 1.1]."


def test_of_many_models_the_lowest_and_the_highest_are_named():
    values = {f"m{i}": float(i) for i in (3, 1, 4, 2)}
    (sentence,) = summary_of([row(questions.ACCURACY, "accuracy", values)], list(values))
    assert sentence.text == "m1 1 [0.9, 1.1] to m4 4 [3.9, 4.1]."


def test_questions_without_a_headline_have_no_sentence():
    assert not summary_of([row(questions.NOISE, "drop", {"cnn": 1.0})], MODELS)
    assert not summary_of([row(Question("New?", "new"), "x", {"cnn": 1.0})], MODELS)


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_the_answers_of_every_result_belong_to_a_declared_question(make):
    assert {answer.question for answer in make().answers()} <= set(QUESTIONS)


def test_questions_that_are_not_declared_come_last():
    assert question_of("New?").topic == questions.OTHER
    assert place_of("New?") == len(QUESTIONS)
    topics = list(dict.fromkeys(q.topic for q in QUESTIONS.values()))
    assert [q.topic for q in QUESTIONS.values()] == sorted(
        (q.topic for q in QUESTIONS.values()), key=topics.index
    )
    assert topics[-1] == questions.OTHER
