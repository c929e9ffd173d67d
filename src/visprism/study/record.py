"""What a study holds: entries with results, failures, and the table that compares models."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html import escape
from itertools import combinations
from typing import Any, Literal, TypedDict

import numpy as np
from jaxtyping import Int64

from visprism.anatomy.blocks.anatomy import Costs
from visprism.core.errors import InputError
from visprism.core.registry import suggestion
from visprism.estimates.findings import Finding
from visprism.estimates.questions import place_of
from visprism.report.costs import cost_rows
from visprism.report.glance import (
    LETTERS,
    SIDE_BY_SIDE,
    Line,
    glance_of,
    glance_table,
    glance_text,
)
from visprism.report.groups import group_rows
from visprism.report.rows import Row, comparison_rows, findings_of
from visprism.table.result import Result

Kind = Literal["failed", "skipped", "effort", "no time"]
FROM_PYTHON = "a module from Python"  # the source of weights that no name stands for


@dataclass(frozen=True)
class Failure:
    """An analysis of a model that gave no result, and why."""

    model: str
    analysis: str
    reason: str  # a sentence
    kind: Kind = "failed"  # "skipped": it does not apply; else beyond the effort or the time

    def stored(self) -> "Failed":
        """It in the index of a study."""
        return Failed(
            model=self.model, analysis=self.analysis, reason=self.reason, kind=self.kind
        )


@dataclass(frozen=True)
class Entry:
    """The results of one analysis of one model, or of two models together."""

    models: tuple[str, ...]
    analysis: str
    results: tuple[Result, ...]  # the main one first
    options: Mapping[str, Any] = field(default_factory=dict)
    images: int = 0
    seconds: float = 0.0  # that the measurement took; of a shared pass, all of it
    key: str = ""  # in the store: a digest of what determines the results

    def __hash__(self) -> int:
        return hash((self.models, self.analysis, self.images, self.key))


@dataclass(frozen=True)
class ModelStudy(Mapping[str, Result]):
    """The main results of one model by the name of the analysis."""

    name: str
    entries: tuple[Entry, ...]

    def __getitem__(self, analysis: str) -> Result:
        """The main result of an analysis, or its result of this type: "reliability"."""
        return self.results(analysis)[0]

    def __iter__(self) -> Iterator[str]:
        return (entry.analysis for entry in self.entries)

    def __len__(self) -> int:
        """Number of analyses."""
        return len(self.entries)

    def results(self, analysis: str) -> tuple[Result, ...]:
        """Every result of an analysis, the main one first, or all results of one type."""
        for entry in self.entries:
            if found := _named(entry, analysis):
                return found
        raise InputError(
            f"{self.name} has no result of {analysis!r}. {suggestion(analysis, list(self))}"
        )

    def findings(self) -> list[Finding]:
        """Every finding, in the order of the analyses."""
        return [f for entry in self.entries for f in findings_of(entry.results)]

    def __repr__(self) -> str:
        """The model and its analyses on one line."""
        return f"<ModelStudy of {self.name}: {', '.join(self) or 'no analyses'}>"

    def _repr_html_(self) -> str:
        """The findings."""
        text = "\n".join(map(str, self.findings()))
        return f"<pre>{escape(text)}</pre>"


def _named(entry: Entry, name: str) -> tuple[Result, ...]:
    """The results of an analysis, or those with an identifier."""
    if entry.analysis == name:
        return entry.results
    return tuple(result for result in entry.results if result.identifier == name)


class Weights(TypedDict):
    """Where the weights of a model are from, and their digest."""

    source: str
    fingerprint: str


class Failed(TypedDict):
    """A `Failure` in the index of a study."""

    model: str
    analysis: str
    reason: str
    kind: Kind


# What an index says of a study as a whole, by key; each is checked where it is used.
Header = TypedDict(
    "Header",
    {
        "images": str,  # digest
        "training images": str,  # digest
        "number of images": int,
        "seed": int,
        "models": list[str],
        "groups": dict[str, list[str]],  # models by group
        "keys": list[str],  # of the entries of a complete study
        "failures": list[Failed],
        "untrained": list[str],  # models with random weights
        "weights": dict[str, Weights],  # by model
        "notes": dict[str, list[str]],  # by model
        "outputs": dict[str, list[list[float | None]]],  # by digest of the weights
        "sizes": dict[str, int],  # number of images by analysis, effort and options
        "positions": list[int],  # of the images in the data
        "unreadable": list[str],  # images that were left out, with the reason
        "data notes": dict[str, list[str]],  # on images and their classes, by model
        "speed": dict[str, dict[str, list[float]]],  # by model and quantity: rounds
        "revision": str,  # of the repository
        "machine": str,
        "seconds": float,
        "effort": str,
        "budget": float | None,  # seconds
        "step": int,  # of a training, and what it reports there
        "begin": int,  # first step of the training
        "metrics": dict[str, float | None],
        "young_statistics": Any,
        "alarms": list[str],
    },
    total=False,
)


@dataclass(frozen=True)
class StudyRecord:
    """Results of several analyses of several models on the same images; see `Study`."""

    models: tuple[str, ...]
    entries: tuple[Entry, ...]
    failures: tuple[Failure, ...] = ()
    header: Header = field(default_factory=Header)

    @property
    def analyses(self) -> tuple[str, ...]:
        """The analyses that gave a result for at least one model."""
        return tuple(dict.fromkeys(entry.analysis for entry in self.entries))

    @property
    def alarms(self) -> list[str]:
        """Sentences to read first: alarms of a training, and models that are not shown."""
        return list(self.header.get("alarms", ()))

    @property
    def notes(self) -> dict[str, list[str]]:
        """What results of a model do not cover, such as blocks off the grid, in sentences."""
        return {name: texts for name, texts in self.header.get("notes", {}).items() if texts}

    @property
    def positions(self) -> Int64[np.ndarray, " n"]:
        """Index in the data of each image of the study, in the order of the study.

        An analysis of n images measures the first n of these. Columns named `image` of results
        are indices into this array.
        """
        return np.array(self.header.get("positions", ()), dtype=np.int64)

    def __getitem__(self, name: str) -> "ModelStudy | dict[str, Result]":
        """What is known of a model, or `analysis`."""
        if name in self.models:
            return self.model(name)
        if found := self.analysis(name):
            return found
        names = [*self.models, *self.analyses]
        raise InputError(f"the study has no {name!r}. {suggestion(name, names)}")

    def __contains__(self, name: object) -> bool:
        """Whether a model or an analysis has this name."""
        return name in self.models or name in self.analyses

    def __iter__(self) -> Iterator[str]:
        return iter(self.models)

    def __len__(self) -> int:
        """Number of models."""
        return len(self.models)

    def __hash__(self) -> int:
        return hash((self.models, self.analyses))

    def model(self, name: str) -> ModelStudy:
        """The results of one model."""
        if name not in self.models:
            raise InputError(f"the study has no {name!r}. {suggestion(name, self.models)}")
        return ModelStudy(name, tuple(e for e in self.entries if e.models == (name,)))

    def analysis(self, name: str) -> dict[str, Result]:
        """The main results of one analysis by model, or all results of one type."""
        return {
            e.models[0]: found[0]
            for e in self.entries
            if len(e.models) == 1 and (found := _named(e, name))
        }

    def between(self, first: str, second: str) -> tuple[Entry, ...]:
        """The results about two models together."""
        names = {self.model(first).name, self.model(second).name}
        return tuple(e for e in self.entries if set(e.models) == names)

    def table(self) -> list[Row]:
        """The numbers that the models are compared by, with paired differences.

        A model with random weights has no answer to a question about correct predictions.
        """
        rows = comparison_rows(
            {
                name: [r for e in self.model(name).entries for r in e.results]
                for name in self.models
            },
            {
                pair: [r for e in self.entries if e.models == pair for r in e.results]
                for pair in combinations(self.models, 2)
            },
            self._same,
        )
        results = [(e.models[0], r) for e in self.entries for r in e.results]
        sizes = {name: r for name, r in results if isinstance(r, Costs)}
        rows += cost_rows(self.header.get("speed", {}), sizes)
        rows.sort(key=lambda row: place_of(row.question))
        untrained = self.header.get("untrained", ())
        kept = (row.of_trained(untrained) for row in rows)
        return [row for row in kept if row.cells or row.differences]

    @property
    def _same(self) -> set[tuple[str, str]]:
        """Pairs of names that stand for one network: code, weights and settings are equal."""
        weights = {n: w.get("fingerprint") for n, w in self.header.get("weights", {}).items()}
        pairs = combinations(self.models, 2)
        return {(a, b) for a, b in pairs if weights.get(a) and weights[a] == weights.get(b)}

    @property
    def groups(self) -> dict[str, list[str]]:
        """Models by group, where seeds of one architecture were given as one."""
        groups = self.header.get("groups", {})
        members = {name for names in groups.values() for name in names}
        return dict(groups) if members == {*self.models} else {}

    @property
    def compared(self) -> tuple[str, ...]:
        """What is compared at a glance: the groups, or the models if there are none."""
        return tuple(self.groups) or self.models

    def group_table(self) -> list[Row]:
        """The table of the groups, with intervals over seeds; empty without groups."""
        return group_rows(self.table(), self.groups)

    def glance(self) -> list[Line]:
        """The questions that matter most: an answer of each model, and the better one."""
        return glance_of(self.group_table() if self.groups else self.table(), self.compared)

    def __str__(self) -> str:
        """The study at a glance, as text."""
        return "\n".join(glance_text(self.glance(), self.compared)) or repr(self)

    def _repr_html_(self) -> str:
        """The study at a glance as a table, and what was not measured."""
        table = glance_table(self.glance(), self.compared) or [(repr(self),)]
        cell = '<td style="text-align: left">{}</td>'.format
        rows = ("".join(cell(escape(text)) for text in row) for row in table)
        notes = ["± is half of a 95% interval"] if len(table) > 1 else []
        notes += [LETTERS] if len(self.compared) > SIDE_BY_SIDE else []
        notes += [f"not measured: {f.analysis} of {f.model}: {f.reason}" for f in self.failures]
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        return f"<table>{body}</table><p>{'<br>'.join(map(escape, notes))}</p>"

    def __repr__(self) -> str:
        return (
            f"<Study of {', '.join(self.models)}: {', '.join(self.analyses) or 'no results'}, "
            f"{len(self.failures)} not measured>"
        )

    def lines(self) -> list[str]:
        """The whole table as text."""
        return [line for row in self.table() for line in row.lines(self.models)]
