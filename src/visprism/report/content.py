"""Content of a report: questions with answers, results by section, and omissions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Any, Literal

from visprism.analyses.base import ANALYSES, Analysis, Section
from visprism.analyses.evolution import SECTION as DURING_TRAINING
from visprism.core.errors import InputError
from visprism.core.files import slug
from visprism.core.options import options_of
from visprism.core.registry import suggestion
from visprism.estimates.findings import Finding
from visprism.estimates.questions import PaperClaim, Question
from visprism.table.result import Result

Mark = Literal["", "supports", "contradicts", "undecided", "not applicable"]
Models = tuple[str, ...]  # one model, or two that are compared
ByModels = Mapping[Models, Sequence[Result]]

MOST_CARDS = 4  # models; more are rows of a table


@dataclass(frozen=True)
class Cell:
    """One number of one model, or why there is none."""

    text: str = ""  # value with interval
    mark: Mark = ""
    reason: str = ""  # why the model has no answer
    failed: bool = False  # whether the analysis gave no result for the model
    anchor: str = ""  # of the section with the result
    subject: str = ""  # part of the model that the number is of
    reading: str = ""  # what the number means, in words


@dataclass(frozen=True)
class Comparison:
    """The paired difference of two models."""

    text: str  # value with interval
    significant: bool = False  # whether the interval excludes 0
    remark: str = ""  # where it does not: "not significant", or why there is no interval
    subject: str = ""
    mark: Mark = ""  # about a claim on the order of the two models


@dataclass(frozen=True)
class Measure:
    """One row of the table: a quantity, and its numbers for each model."""

    quantity: str
    cells: Mapping[str, Sequence[Cell]]  # by model, all or none; none if it is of two together
    differences: Sequence[Comparison] = ()
    images: str = ""  # how many were measured
    unit: str = ""  # of the numbers of the models


@dataclass(frozen=True)
class QuestionRows:
    """A question with its measures; the first one is always visible."""

    question: Question
    measures: Sequence[Measure]
    claim: PaperClaim | None = None  # that its verdicts are about


@dataclass(frozen=True)
class ModelCard:
    """What a model is."""

    name: str
    kinds: Sequence[str] = ()  # of its blocks, in forward order
    sizes: Sequence[str] = ()  # parameters, arithmetic
    measured: Sequence[str] = ()  # speed on this machine, accuracy
    random_weights: bool = False


@dataclass(frozen=True)
class GlanceRow:
    """One question on the first screen: the answer of each model, and the better one."""

    label: str
    cells: Mapping[str, str]  # by model
    better: str = ""  # a model, "tie", "mixed" or "can't tell"
    reason: str = ""  # of "can't tell"
    numbers: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)
    direction: Literal["", "higher", "lower"] = ""  # that is better
    percent: bool = False  # the axis is 0 to 100
    anchor: str = ""  # of the section with the result
    images: str = ""  # how many were measured

    @property
    def arrow(self) -> str:
        """Up where higher is better, down where lower is."""
        return {"higher": "\N{UPWARDS ARROW}", "lower": "\N{DOWNWARDS ARROW}"}.get(
            self.direction, ""
        )

    @property
    def axis(self) -> tuple[float, float]:
        """The ends of the axis of the numbers."""
        ends = [end for number in self.numbers.values() for end in number if isfinite(end)]
        low, high = min(0.0, *ends), max(ends)
        return (0.0, 100.0) if self.percent else (low, high if high > low else low + 1)

    def place(self, number: float) -> float:
        """Place on the axis, in percent."""
        low, high = self.axis
        return 100 * (number - low) / (high - low)

    @property
    def marks(self) -> dict[str, tuple[float, float, float]]:
        """Places of the value and of the ends of its interval, which may be the value."""
        marks = {}
        for name, (value, low, high) in self.numbers.items():
            if isfinite(value):
                ends = (low, high) if isfinite(low) and isfinite(high) else (value, value)
                marks[name] = self.place(value), self.place(ends[0]), self.place(ends[1])
        return marks


@dataclass(frozen=True)
class Omission:
    """An analysis that gave no result for some models, and why."""

    analysis: str
    models: Models
    reason: str
    kind: str  # "failed", "no time", "effort", or "skipped": it does not apply

    @property
    def applies(self) -> bool:
        """Whether it could have been measured."""
        return self.kind != "skipped"


@dataclass(frozen=True)
class SectionContent:
    """One type of result of an analysis, with the results that a study has of it."""

    section: Section
    anchor: str  # in the page; figure files begin with it
    results: ByModels
    # For a training: the results by step, which is named as in "step 500, loss 0.31".
    steps: Mapping[str, Mapping[str, Result]] = field(default_factory=dict)

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
            if _comparable(value) != _comparable(defaults.get(name))
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
    questions: Sequence[QuestionRows]
    chapters: Sequence[Chapter]
    omissions: Sequence[Omission] = ()
    manifest: Mapping[str, str] = field(default_factory=dict)  # fact -> value
    subtitle: str = ""  # data, number of images, seed, date
    cards: Sequence[ModelCard] = ()
    sentences: Sequence[str] = ()
    glance: Sequence[GlanceRow] = ()

    @property
    def kinds(self) -> list[str]:
        """The kinds of blocks of all models, each once."""
        return list(dict.fromkeys(kind for card in self.cards for kind in card.kinds))

    @property
    def ranked(self) -> list[str]:
        """The models by the first row at a glance that has an order, the best first."""
        row = next((row for row in self.glance if row.direction and row.numbers), None)
        if row is None:
            return list(self.models)
        sign = 1 if row.direction == "lower" else -1
        values = {name: sign * value for name, (value, *_) in row.numbers.items()}
        return sorted(self.models, key=lambda name: values.get(name, inf))

    @property
    def mixed(self) -> bool:
        """Whether an answer at a glance is "mixed"."""
        return any("mixed" in text for row in self.glance for text in row.cells.values())

    @property
    def random_weights(self) -> list[str]:
        """The models that are not trained."""
        return [card.name for card in self.cards if card.random_weights]

    @property
    def not_measured(self) -> list[Omission]:
        """Analyses that apply and gave no result; errors come first."""
        return [omission for omission in self.omissions if omission.applies]

    @property
    def not_applicable(self) -> list[Omission]:
        """Analyses that do not apply to a model."""
        return [omission for omission in self.omissions if not omission.applies]

    @property
    def codes(self) -> dict[str, list[tuple[str, str]]]:
        """For each code of a finding, the sections (title, anchor) where it occurs."""
        places: dict[str, list[tuple[str, str]]] = {}
        for chapter in self.chapters:
            for part in chapter.sections:
                for finding in (f for fs in part.findings.values() for f in fs if f.code):
                    place = (part.section.title, part.anchor)
                    if place not in places.setdefault(finding.code, []):
                        places[finding.code].append(place)
        return dict(sorted(places.items()))

    @property
    def topics(self) -> dict[str, list[QuestionRows]]:
        """The questions of the table by topic."""
        topics: dict[str, list[QuestionRows]] = {}
        for rows in self.questions:
            topics.setdefault(rows.question.topic, []).append(rows)
        return topics

    @property
    def claims(self) -> dict[PaperClaim, dict[tuple[str, str], str]]:
        """The claims of the paper that the questions are about.

        Each with its verdicts by model, or models, and measure; parts of a model that the
        measure does not name stand before it.
        """
        claims: dict[PaperClaim, dict[tuple[str, str], str]] = {}
        for rows in self.questions:
            if rows.claim:
                claims.setdefault(rows.claim, {}).update(_verdicts(rows, self.models))
        return claims

    def results(self) -> dict[str, list[Result]]:
        """Results by model, without those about two models."""
        by_model: dict[str, list[Result]] = {name: [] for name in self.models}
        for chapter in self.chapters:
            for part in chapter.sections:
                for models, results in part.results.items():
                    if len(models) == 1:
                        by_model[models[0]] += results
        return by_model


def _verdicts(rows: QuestionRows, models: Models) -> dict[tuple[str, str], str]:
    """The verdicts of a question, by model, or models, and part of the model or measure."""
    verdicts: dict[tuple[str, str], str] = {}
    for measure in rows.measures:
        by_model = {**measure.cells, label_of(models): measure.differences}
        for model, cells in by_model.items():
            marked = [c for c in cells if c.mark not in ("", "not applicable")]
            verdicts |= {
                (model, ": ".join(filter(None, (c.subject, measure.quantity)))): c.mark
                for c in marked
            }
    return verdicts


def chapters_of(results: Mapping[str, ByModels]) -> list[Chapter]:
    """Chapters with their sections, in the order of `ANALYSES`.

    Args:
        results: by analysis, then by models.
    """
    for name in results:
        if name not in list(ANALYSES):
            raise InputError(
                f"{name} must be registered with ANALYSES.register for a report. "
                f"{suggestion(name, list(ANALYSES))}"
            )
    taken: set[str] = set()
    return [
        Chapter(ANALYSES[name], tuple(_sections(ANALYSES[name], results[name], taken)))
        for name in ANALYSES
        if name in results
    ]


def label_of(models: Models) -> str:
    """The name of one model, or ``first and second``."""
    return " and ".join(models)


def _sections(
    analysis: type[Analysis], results: ByModels, taken: set[str]
) -> list[SectionContent]:
    """The sections that have results; each takes an anchor that no other has."""
    parts = []
    for number, section in enumerate((*analysis.sections, DURING_TRAINING)):
        of_type = {
            models: tuple(r for r in of_models if type(r) is section.result)
            for models, of_models in results.items()
        }
        of_type = {models: of_models for models, of_models in of_type.items() if of_models}
        if of_type:
            anchor = _anchor(analysis.name, section, number)
            anchor = next(a for a in _numbered(anchor) if a not in taken)
            taken.add(anchor)
            parts.append(SectionContent(section, anchor, of_type))
    return parts


def _anchor(analysis: str, section: Section, number: int) -> str:
    identifier = section.result.identifier
    if number == 0:
        return slug(analysis)
    return slug(identifier if identifier.startswith(analysis) else f"{analysis}-{identifier}")


def _numbered(anchor: str):
    yield anchor
    yield from (f"{anchor}-{number}" for number in range(2, 1000))


def _comparable(value: Any) -> Any:
    """A value as JSON gives it back."""
    if isinstance(value, tuple | list):
        return [_comparable(one) for one in value]
    return value if isinstance(value, int | float | str | bool | None) else str(value)
