"""Laws of the content of a report: sections come from declarations, and nothing is lost."""

from dataclasses import replace

import pytest

from visprism.core.errors import InputError
from visprism.report import drawings
from visprism.study import Entry
from visprism.study.report_content import content_of


def test_chapters_follow_the_registry_and_sections_the_declaration(study):
    content = content_of(study)
    assert [c.analysis.name for c in content.chapters] == ["test-norms", "test-gaps"]
    assert [[p.anchor for p in c.sections] for c in content.chapters] == [
        ["test-norms", "test-norms-test-gaps"],
        ["test-gaps"],
    ]


def test_a_result_about_two_models_stands_under_its_analysis_in_a_panel_of_its_own(study):
    (_, part), _ = (c.sections for c in content_of(study).chapters)
    assert {ending: list(panel) for ending, panel in part.panels.items()} == {
        "": ["a"],
        "-between-models": ["a and b"],
    }
    assert list(part.findings) == ["a", "a and b"]


def test_several_results_of_one_type_have_a_panel_each(study, make):
    several = replace(study.entries[1], results=(make.norms("a"), make.norms("a", end=3)))
    content = content_of(replace(study, entries=(several, study.entries[2])))
    (part,) = content.chapters[0].sections
    assert {ending: list(panel) for ending, panel in part.panels.items()} == {
        "": ["a", "b"],
        "-2": ["a"],
    }
    stems = [d.stem for d in drawings(content)]
    norms = ["test-norms", "test-norms-2", "test-norms-count", "test-norms-count-2"]
    assert stems == ["overview", *norms]


def test_every_declared_figure_is_drawn_with_the_models_that_have_the_result(study):
    titles = {
        d.stem: [ax.get_title() for ax in figure.axes]
        for d in drawings(content_of(study))
        for figure in [d.draw()]
        if figure is not None
    }
    assert titles == {
        "test-norms": ["a", "b"],
        "test-norms-count": ["a", "b"],
        "test-norms-test-gaps": ["a"],
        "test-norms-test-gaps-between-models": ["a and b"],
    }


def test_a_question_has_a_cell_for_every_model_with_the_verdict_and_the_section(study):
    falls, brightness = content_of(study).questions
    assert (falls.question, falls.claim) == ("Do norms fall?", "C6")
    assert {m: (c.text, c.mark, c.anchor) for m, c in falls.cells.items()} == {
        "a": ("-0.25 [-0.75, 0.25]", "supports", "test-norms"),
        "b": ("0.75 [0.25, 1.25]", "contradicts", "test-norms"),
    }
    assert falls.difference == ""
    # Half of the 32 images differ by 0.2, half by 0.3: 0.25 ± 2.0395 x 0.05 / sqrt(31).
    assert brightness.difference == "0.25 [0.232, 0.268]"
    assert brightness.significant


def test_a_model_without_an_answer_has_the_reason_of_its_failure(study):
    without = replace(study, entries=study.entries[:2])
    (falls, _) = content_of(without).questions
    assert falls.cells["b"].mark == "not applicable"
    assert falls.cells["b"].reason == "the analysis gives no such number for this model"
    failed = replace(study.failures[0], analysis="test-norms", reason="no blocks")
    (falls, _) = content_of(replace(without, failures=(failed,))).questions
    assert falls.cells["b"].reason == "no blocks"


def test_failures_of_one_reason_are_one_omission_and_errors_come_first(study):
    failed, skipped = content_of(study).omissions
    assert (failed.analysis, failed.models, failed.failed) == ("hessian", ("a", "b"), True)
    assert (skipped.analysis, skipped.models, skipped.failed) == ("test-gaps", ("b",), False)


def test_options_that_differ_from_the_defaults_are_known(study):
    first, second = content_of(study).chapters
    assert first.options == {"steps": 5, "bands": [0.5, 1.0]}
    assert first.changed_options == {"steps": 5}
    assert second.changed_options == {}
    assert first.seconds == {"a": 1.5, "b": 2.5, "a and b": 0.25}


def test_codes_lead_to_the_sections_where_they_occur(study):
    assert content_of(study).codes == {"VP108": [("Norms of blocks", "test-norms")]}


def test_an_analysis_that_is_not_registered_is_refused(study):
    other = Entry(("a",), "test-nors", study.entries[0].results)
    with pytest.raises(
        InputError, match=r"test-nors must be registered.*Did you mean test-nor"
    ):
        content_of(replace(study, entries=(other,)))
