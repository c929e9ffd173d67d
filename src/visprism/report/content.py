"""Content of a report: rows of the table, results by section, and omissions."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from visprism.core.files import slug
from visprism.core.options import options_of
from visprism.estimates.findings import Finding
from visprism.estimates.questions import Question, question_of
from visprism.kit.analysis import Analysis, Section
from visprism.report.glance import Line, ranked_by
from visprism.report.rows import Row
from visprism.table.result import Result

Models = tuple[str, ...]  # one model, or two that are compared
ByModels = Mapping[Models, Sequence[Result]]

MOST_CARDS = 4  # models; more are rows of a table


@dataclass(frozen=True)
class ModelCard:
    """What a model is."""

    name: str
    kinds: Sequence[str] = ()  # of its blocks, in forward order
    sizes: Sequence[str] = ()  # parameters, arithmetic
    measured: Sequence[str] = ()  # speed on this machine, accuracy
    random_weights: bool = False


@dataclass(frozen=True)
class Omission:
    """An analysis that gave no result for some models, and why."""

    analysis: str
    models: Models
    reason: str
    kind: str  # "failed", "no time", "effort", or "skipped": it does not apply


@dataclass(frozen=True)
class SectionContent:
    """One type of result of an analysis, with the results that a study has of it."""

    section: Section
    anchor: str  # in the page; figure files begin with it
    results: ByModels

    @property
    def panels(self) -> dict[str, dict[str, Result]]:
        """Results that stand side by side in one figure, by the ending of its file name.

        The first results of all models form a panel, the second ones another, and so do those
        about two models.
        """
        by_ending: dict[str, dict[str, Result]] = {}
        for models, results in self.results.items():
            pair = "" if len(models) == 1 else "-between-models"
            for number, result in enumerate(results, start=1):
                ending = pair if number == 1 else f"{pair}-{number}"
                by_ending.setdefault(ending, {})[label_of(models)] = result
        return by_ending

    @property
    def findings(self) -> dict[str, list[Finding]]:
        """Findings by model, or by pair of models."""
        by_label = {
            label_of(models): [f for result in results for f in result.findings()]
            for models, results in self.results.items()
        }
        return {label: findings for label, findings in by_label.items() if findings}


@dataclass(frozen=True)
class Chapter:
    """One analysis: its sections, and how it was measured."""

    analysis: type[Analysis]
    sections: tuple[SectionContent, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    images: str = ""  # how many were measured of how many, and why not all
    seconds: Mapping[str, float] = field(default_factory=dict)  # by model or pair of models
    files: tuple[str, ...] = ()  # tables next to the page, relative to it

    @property
    def title(self) -> str:
        """Title of the first section; the name of the analysis where it has none."""
        return self.sections[0].section.title if self.sections else self.analysis.name

    @property
    def anchor(self) -> str:
        """Anchor of the chapter, which is its first section's."""
        return self.sections[0].anchor if self.sections else slug(self.analysis.name)

    @property
    def changed_options(self) -> dict[str, Any]:
        """The options whose values are not the defaults."""
        defaults = {name: o.default for name, o in options_of(self.analysis).items()}
        return {
            name: value
            for name, value in self.options.items()
            if _as_json(value) != _as_json(defaults.get(name))
        }

    def anchor_of(self, result: type[Result]) -> str:
        """Anchor of the section of a type of result, or of the chapter without a section."""
        for part in self.sections:
            if part.section.result is result:
                return part.anchor
        return self.anchor


@dataclass(frozen=True)
class Content:
    """All that a page shows."""

    title: str
    models: Models
    rows: Sequence[Row]  # of the table
    chapters: Sequence[Chapter]
    omissions: Sequence[Omission] = ()
    manifest: Mapping[str, str] = field(default_factory=dict)  # fact -> value
    subtitle: str = ""  # data, number of images, seed, date
    cards: Sequence[ModelCard] = ()
    sentences: Sequence[str] = ()
    glance: Sequence[Line] = ()
    compared: Sequence[str] = ()  # at a glance: groups of models; empty: the models

    def __post_init__(self) -> None:
        object.__setattr__(self, "compared", tuple(self.compared) or self.models)

    @property
    def kinds(self) -> list[str]:
        """The kinds of blocks of all models, each once."""
        return list(dict.fromkeys(kind for card in self.cards for kind in card.kinds))

    @property
    def ranked(self) -> list[str]:
        """The models by the first line at a glance that has an order, the best first."""
        line = next((x for x in self.glance if x.question.better and x.answers), None)
        return list(self.compared) if line is None else ranked_by(line, self.compared)

    @property
    def mixed(self) -> bool:
        """Whether an answer at a glance is "mixed"."""
        return any("mixed" in text for line in self.glance for text in line.cells.values())

    @property
    def timed(self) -> bool:
        """Whether the models were timed."""
        return any(line.question.topic == "cost" and line.arrow for line in self.glance)

    @property
    def random_weights(self) -> list[str]:
        """The models that are not trained."""
        return [card.name for card in self.cards if card.random_weights]

    @property
    def not_measured(self) -> list[Omission]:
        """Analyses that apply and gave no result; errors come first."""
        return [omission for omission in self.omissions if omission.kind != "skipped"]

    @property
    def not_applicable(self) -> list[Omission]:
        """Analyses that do not apply to a model."""
        return [omission for omission in self.omissions if omission.kind == "skipped"]

    @property
    def parts(self) -> list[SectionContent]:
        """The sections of all chapters."""
        return [part for chapter in self.chapters for part in chapter.sections]

    @property
    def codes(self) -> dict[str, list[tuple[str, str]]]:
        """For each code of a finding, the sections (title, anchor) where it occurs."""
        places: dict[str, dict[tuple[str, str], None]] = {}
        for part in self.parts:
            for finding in (f for fs in part.findings.values() for f in fs if f.code):
                place = part.section.title, part.anchor
                places.setdefault(finding.code, {})[place] = None
        return {code: list(places[code]) for code in sorted(places)}

    @property
    def topics(self) -> dict[str, dict[Question, list[list[Row]]]]:
        """The rows by topic, question and measure; a measure has a row for each part."""
        topics: dict[str, dict[Question, dict[str, list[Row]]]] = {}
        for row in self.rows:
            question = question_of(row.question)
            measures = topics.setdefault(question.topic, {}).setdefault(question, {})
            measures.setdefault(row.measure, []).append(row)
        return {
            topic: {question: list(of.values()) for question, of in questions.items()}
            for topic, questions in topics.items()
        }

    def results(self) -> dict[str, list[Result]]:
        """Results by model, without those about two models."""
        by_model: dict[str, list[Result]] = {name: [] for name in self.models}
        for part in self.parts:
            for models, results in part.results.items():
                if len(models) == 1:
                    by_model[models[0]] += results
        return by_model


def label_of(models: Models) -> str:
    """The name of one model, or ``first and second``."""
    return " and ".join(models)


def _as_json(value: Any) -> str:
    return json.dumps(value, default=str)  # of a tuple as of a list
