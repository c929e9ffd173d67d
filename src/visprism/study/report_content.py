"""What the report shows of a study: its table, its results by section, and what is missing."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from visprism.analyses.evolution import SECTION as DURING_TRAINING
from visprism.anatomy.blocks.anatomy import Costs, short
from visprism.core.errors import InputError
from visprism.core.files import slug
from visprism.core.registry import suggestion
from visprism.estimates.questions import ACCURACY, LATENCY, question_of
from visprism.estimates.text import number_of
from visprism.kit.analysis import ANALYSES, Analysis
from visprism.kit.needs import Needs
from visprism.report.content import (
    Chapter,
    Content,
    ModelCard,
    Omission,
    SectionContent,
    label_of,
)
from visprism.report.glance import Line, glance_of, sentences_of
from visprism.report.groups import group_rows
from visprism.report.rows import Row, answers_of
from visprism.study.manifest import manifest, offered, subtitle
from visprism.study.record import Entry, StudyRecord
from visprism.study.store import file_names

_MOST_NAMES = 3  # of models in a title
_ONE_NETWORK = (
    "Don't conclude how families differ: one network each, and \N{PLUS-MINUS SIGN} does not "
    "cover other training runs."
)
_SEEDS = (
    "Intervals cover other trained seeds of each group, on these images; seeds are paired in "
    "their order."
)


def content_of(study: StudyRecord, *, files: Collection[str] = ()) -> Content:
    """The content of the report of a study."""
    chapters = _chapters(study, files)
    rows = _placed(study, chapters)
    compared = group_rows(rows, study.groups) if study.groups else rows
    lines = glance_of(compared, study.compared)
    sentences = [*study.alarms, *sentences_of(lines, study.compared)]
    caveat = _SEEDS if study.groups else _ONE_NETWORK
    return Content(
        title=_title(study),
        models=study.models,
        compared=study.compared,
        rows=rows,
        cards=[_card(study, name, lines) for name in study.models],
        sentences=[*sentences, caveat] if len(study.models) > 1 else sentences,
        glance=lines,
        subtitle=subtitle(study),
        chapters=chapters,
        omissions=_omissions(study),
        manifest=manifest(study),
    )


def _title(study: StudyRecord) -> str:
    """Names of the models, with their weights if these are random; or the number of many."""
    if study.groups:
        return ", ".join(f"{n} ({number_of(len(g), 'seed')})" for n, g in study.groups.items())
    if len(study.models) > _MOST_NAMES:
        first = ", ".join(study.models[: _MOST_NAMES - 1])
        return f"{first} and {len(study.models) - _MOST_NAMES + 1} more models"
    untrained = [m for m in study.header.get("untrained", ()) if "random" not in m]
    return ", ".join(f"{m} (random weights)" if m in untrained else m for m in study.models)


def _card(study: StudyRecord, model: str, lines: Sequence[Line]) -> ModelCard:
    """Kinds of blocks, size, speed on this machine and accuracy of a model, as measured."""
    costs = [r for e in study.model(model).entries for r in e.results if isinstance(r, Costs)]
    sizes = [
        size
        for cost in costs
        for size in (
            f"{short(float(cost.distinct_parameters))} parameters",
            f"{short(float(cost.macs.sum()))} MACs per image",
        )
    ]
    texts = {ACCURACY.text: "accuracy {}%", LATENCY.text: "{} ms for one image"}
    measured = [
        texts[line.question.text].format(line.cells[model])
        for line in lines
        if line.question.text in texts and model in line.answers
    ]
    return ModelCard(
        model,
        [str(kind) for cost in costs for kind in cost.kind],
        sizes,
        measured,
        random_weights=model in study.header.get("untrained", ()),
    )


def _chapters(study: StudyRecord, files: Collection[str]) -> list[Chapter]:
    """A chapter for each analysis, in the order of `ANALYSES`."""
    by_analysis: dict[str, list[Entry]] = {}
    for entry in study.entries:
        by_analysis.setdefault(entry.analysis, []).append(entry)
    for name in by_analysis:
        if name not in list(ANALYSES):
            raise InputError(
                f"{name} must be registered with ANALYSES.register for a report. "
                f"{suggestion(name, list(ANALYSES))}"
            )
    return [
        _chapter(study, ANALYSES[name], by_analysis[name], files)
        for name in ANALYSES
        if name in by_analysis
    ]


def _chapter(
    study: StudyRecord, analysis: type[Analysis], entries: list[Entry], files: Collection[str]
) -> Chapter:
    tables = [
        name.removesuffix(".npz") + ".csv" for entry in entries for name in file_names(entry)
    ]
    parts = []
    # Curves over a training come before the figures of its last step.
    for number, section in enumerate((DURING_TRAINING, *analysis.sections), start=-1):
        kind = section.result
        of_type = {e.models: tuple(r for r in e.results if type(r) is kind) for e in entries}
        of_type = {models: results for models, results in of_type.items() if results}
        if of_type:
            anchor = _anchor(analysis.name, kind.identifier, number)
            figures = {k: _with_results(v, entries) for k, v in section.figures.items()}
            section = replace(section, figures=figures)
            parts.append(SectionContent(section, anchor, of_type))
    return Chapter(
        analysis,
        tuple(parts),
        options=entries[0].options,
        images=_images_text(analysis, entries, offered(study)),
        seconds={label_of(e.models): e.seconds for e in entries},
        files=tuple(name for name in tables if name in files),
    )


def _with_results(options: Mapping[str, Any], entries: list[Entry]) -> dict[str, Any]:
    """The options of a figure, with the results of each model in place of their type."""
    return {
        name: {label_of(e.models): r for e in entries for r in e.results if type(r) is value}
        if isinstance(value, type)
        else value
        for name, value in options.items()
    }


def _anchor(analysis: str, identifier: str, number: int) -> str:
    """The first section has the name of its analysis, others have their result's."""
    if not number:
        return slug(analysis)
    if identifier == analysis:
        return slug(f"{analysis}-{number + 1}")
    return slug(identifier if identifier.startswith(analysis) else f"{analysis}-{identifier}")


def _images_text(analysis: type[Analysis], entries: list[Entry], offered: int) -> str:
    used = max(r.provenance.images for e in entries for r in e.results)
    if not used:
        return "none"
    if Needs.TRAINING_IMAGES in analysis.needs:
        return f"{used} training images"
    return f"all {offered}" if used == offered else f"{used} of {offered}"


def _omissions(study: StudyRecord) -> list[Omission]:
    """Failures, with models that share analysis and reason together; errors come first."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for f in study.failures:
        groups.setdefault((f.analysis, f.reason, f.kind), []).append(f.model)
    omissions = [
        Omission(analysis, tuple(models), reason, kind)
        for (analysis, reason, kind), models in groups.items()
    ]
    return sorted(
        omissions, key=lambda o: ["failed", "no time", "effort", "skipped"].index(o.kind)
    )


def _placed(study: StudyRecord, chapters: Sequence[Chapter]) -> list[Row]:
    """The table, with the sections of its numbers and why models have none."""
    chapter_of = {chapter.analysis.name: chapter for chapter in chapters}
    origins = {
        answer.id: (entry.analysis, type(result))
        for entry in study.entries
        for answer, result in answers_of(entry.results)
    }
    failures = {(f.model, f.analysis): f.reason for f in study.failures}
    reasons = {
        (entry.models[0], type(result)): reason.rstrip(".")
        for entry in study.entries
        for result in entry.results
        if len(entry.models) == 1
        and isinstance(reason := getattr(result, "reason", ""), str)
        and reason
    }
    rows = []
    for row in study.table():
        if question_of(row.question).topic == "cost":
            missing = {m: "not measured" for m in study.models if m not in row.cells}
            rows.append(replace(row, missing=missing, anchor="manifest"))
            continue
        analysis, kind = origins[row.id]
        of_labels = question_of(row.question).of_labels
        random = study.header.get("untrained", ()) if of_labels else ()
        missing = {
            model: "random weights"
            if model in random
            else failures.get((model, analysis))
            or reasons.get((model, kind), "the analysis gives no such number for this model")
            for model in study.models
            if model not in row.cells
        }
        anchor = chapter_of[analysis].anchor_of(kind)
        rows.append(replace(row, missing=missing, anchor=anchor))
    return rows
