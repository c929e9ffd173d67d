"""Laws of the content of a report: sections come from declarations, and nothing is lost."""

from dataclasses import replace

from visprism import Answer, Entry, Provenance, examine
from visprism.estimates import questions
from visprism.estimates.estimated import Number
from visprism.estimates.questions import question_of
from visprism.report.drawings import drawings
from visprism.results import TemperatureScaling
from visprism.study.record import FROM_PYTHON
from visprism.study.report_content import content_of

KINDS = {"a": ["conv"], "b": ["attention", "mlp"]}


def test_several_results_of_one_type_have_a_panel_each(study, make):
    several = replace(study.entries[1], results=(make.norms("a"), make.norms("a", end=3)))
    content = content_of(replace(study, entries=(several, study.entries[2])))
    (part,) = content.chapters[0].sections
    assert {end: [*panel] for end, panel in part.panels.items()} == {
        "": ["a", "b"],
        "-2": ["a"],
    }
    stems = [d.stem for d in drawings(content)]
    norms = ["test-norms", "test-norms-2", "test-norms-count", "test-norms-count-2"]
    assert stems == ["overview", *norms]


def test_every_declared_figure_is_drawn_with_the_models_that_have_the_result(study):
    drawn = {d.stem: d.draw() for d in drawings(content_of(study))}
    titles = {s: [ax.get_title() for ax in f.axes] for s, f in drawn.items() if f is not None}
    assert titles == {
        "test-norms": ["a", "b"],
        "test-norms-count": ["a", "b"],
        "test-norms-test-gaps": ["a"],
        "test-norms-test-gaps-between-models": ["a and b"],
    }


def measures_of(study):
    """Question -> its measures: the rows that differ in the part of the model."""
    topics = content_of(study).topics.values()
    return {q.text: measures for questions in topics for q, measures in questions.items()}


def test_a_row_has_an_answer_of_every_model_and_the_section(study):
    (((falls,),), ((brightness,), (contrast,))) = measures_of(study).values()
    assert falls.question == "Do norms fall?"
    assert {name: falls.bare_answer(name) for name in "ab"} == {
        "a": "-0.25 [-0.75, 0.25]",
        "b": "0.75 [0.25, 1.25]",
    }
    assert falls.anchor == "test-norms"
    assert not falls.differences
    # Half of the 32 images differ by 0.2, half by 0.3: 0.25 ± 2.0395 x 0.05 / sqrt(31).
    assert contrast.measure == "contrast"
    assert brightness.bare_difference() == "0.25 [0.232, 0.268]"


def test_a_model_without_an_answer_has_the_reason_of_its_failure(study):
    def reason(study):
        return measures_of(study)["Do norms fall?"][0][0].missing

    without = replace(study, entries=study.entries[:2])
    assert reason(without) == {"b": "the analysis gives no such number for this model"}
    failed = replace(study.failures[0], analysis="test-norms", reason="no blocks")
    assert reason(replace(without, failures=(failed,))) == {"b": "no blocks"}


def test_a_result_states_why_it_has_no_number(study):
    temperature = TemperatureScaling(temperature=Number(1.5), provenance=Provenance(images=8))
    reason = "temperature must exist, got none."
    without = TemperatureScaling(temperature=Number("nan"), reason=reason)
    entries = [
        Entry((model,), "calibration", (result,))
        for model, result in (("a", temperature), ("b", without))
    ]
    rows = measures_of(replace(study, entries=tuple(entries), failures=()))
    assert rows[questions.TEMPERATURE.text][0][0].missing == {"b": reason.rstrip(".")}


def test_numbers_of_several_parts_of_a_model_are_one_measure(study, monkeypatch):
    def answers(result):
        return tuple(
            Answer(
                questions.FILTERS.text,
                f"{measure} of {kind}",
                value,
                subject=kind,
                measure=measure,
                reading="low-pass",
            )
            for kind in KINDS[result.provenance.model]
            for measure, value in (("amplitude", -0.5), ("phase", 0.25))
        )

    monkeypatch.setattr(type(study.entries[1].results[0]), "answers", answers)
    (measures,) = measures_of(study).values()
    assert [rows[0].measure for rows in measures] == ["amplitude", "phase"]
    parts = [[(n, a.subject) for n, a in row.cells.items()] for row in measures[0]]
    assert parts == [[("a", "conv")], [("b", "attention")], [("b", "mlp")]]
    (line,) = content_of(study).glance
    assert line.label.startswith("high frequencies")
    assert line.cells["a"] == "conv low-pass"
    assert line.rows[0].anchor == "test-norms"


def test_random_weights_are_the_reason_for_a_missing_answer_about_labels():
    models = {"random": "resnet20?pretrained=False", "trained": "resnet20.shapes"}
    analyses = ["calibration", "readout", "class-separability"]
    study = examine(models, "shapes", analyses=analyses, limit=40)
    table = measures_of(study)
    assert {questions.READOUT.text, questions.COLLAPSE.text} < set(table)
    table = {text: of for text, of in table.items() if question_of(text).topic != "cost"}
    for row in (r for measures in table.values() for rows in measures for r in rows):
        assert row.missing == {"random": "random weights"}
        assert not row.differences


def test_shipped_weights_of_other_training_images_are_named(study):
    def subtitle(*sources):
        weights = {
            name: {"source": source, "fingerprint": ""}
            for name, source in zip("ab", sources, strict=True)
        }
        return content_of(replace(study, header={**study.header, "weights": weights})).subtitle

    seen = "The models were trained on different numbers of images: "
    assert seen in subtitle("resnet20.shapes", "resnet20.cifar10")
    assert seen not in subtitle("resnet20.shapes", FROM_PYTHON)
