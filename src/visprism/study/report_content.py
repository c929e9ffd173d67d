"""What the report shows of a study: its table, its results by section, its manifest."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from math import nan
from typing import TYPE_CHECKING

from visprism.analyses.base import ANALYSES, Analysis, Needs
from visprism.anatomy.blocks.anatomy import Costs, short
from visprism.core.preprocessing import NOT_STATED
from visprism.core.provenance import Provenance
from visprism.estimates.answers import POINTS, Answer
from visprism.estimates.questions import PAPER_CLAIMS, question_of
from visprism.images.image_set import DATA
from visprism.report.content import (
    MOST_CARDS,
    Cell,
    Chapter,
    Comparison,
    Content,
    GlanceRow,
    Measure,
    ModelCard,
    Omission,
    QuestionRows,
    SectionContent,
    chapters_of,
    label_of,
)
from visprism.study.glance import Line, glance_of, sentences_of
from visprism.study.store import file_names
from visprism.study.study import FROM_PYTHON, Entry, Study
from visprism.study.table import Row, answers_of, images_of
from visprism.table.result import Result

if TYPE_CHECKING:
    from visprism.models.pretrained import PretrainedCard

_MOST_NAMES = 3  # of models in a title
_ONE_NETWORK = (
    "Don't conclude how families differ: one network each, and \N{PLUS-MINUS SIGN} does not "
    "cover other training runs."
)


def content_of(study: Study, *, files: Collection[str] = ()) -> Content:
    """The content of the report of a study."""
    by_analysis: dict[str, list[Entry]] = {}
    for entry in study.entries:
        by_analysis.setdefault(entry.analysis, []).append(entry)
    chapters = [
        _described(study, chapter, by_analysis[chapter.analysis.name], files)
        for chapter in chapters_of(
            {name: {e.models: e.results for e in es} for name, es in by_analysis.items()}
        )
    ]
    table = _Table(study, {c.analysis.name: c for c in chapters})
    return Content(
        title=_title(study),
        models=study.models,
        questions=table.questions(),
        cards=[_card(study, name, table.lines) for name in study.models],
        sentences=[*study.alarms, *table.sentences()],
        glance=[*table.glance(), *_size_rows(study)],
        subtitle=_subtitle(study),
        chapters=chapters,
        omissions=_omissions(study),
        manifest=_manifest(study),
    )


def _title(study: Study) -> str:
    """Names of the models, with their weights if these are random; or the number of many."""
    if len(study.models) > _MOST_NAMES:
        return f"{len(study.models)} models"
    untrained = [m for m in study.header.get("untrained", ()) if "random" not in m]
    return ", ".join(f"{m} (random weights)" if m in untrained else m for m in study.models)


def _card(study: Study, model: str, lines: Sequence[Line]) -> ModelCard:
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
    accuracy = [
        f"accuracy {line.cells[model]}%"
        for line in lines
        if line.question.label == "accuracy" and model in line.answers
    ]
    return ModelCard(
        model,
        [str(kind) for cost in costs for kind in cost.kind],
        sizes,
        [*_speed(study, model), *accuracy],
        random_weights=model in study.header.get("untrained", ()),
    )


def _scaled(answer: Answer) -> tuple[float, float, float]:
    scale = 100 if answer.unit in ("%", POINTS) else 1
    return scale * answer.value, scale * answer.low, scale * answer.high


def _size_rows(study: Study) -> Iterator[GlanceRow]:
    """Size and speed of the models of a study that has too many for cards."""
    if len(study.models) <= MOST_CARDS:
        return
    costs = {e.models[0]: r for e in study.entries for r in e.results if isinstance(r, Costs)}
    speed = study.header.get("speed", {})
    sizes: dict[str, dict[str, float]] = {
        "parameters": {name: of.distinct_parameters for name, of in costs.items()},
        "MACs per image": {name: of.macs.sum() for name, of in costs.items()},
        "latency, ms": {
            name: 1e3 * of["latency"] for name, of in speed.items() if "latency" in of
        },
    }
    for label, values in sizes.items():
        cells = {name: short(float(f"{value:.3g}")) for name, value in values.items()}
        numbers = {name: (float(value), nan, nan) for name, value in values.items()}
        if cells:
            yield GlanceRow(label, cells, numbers=numbers)


def _speed(study: Study, model: str) -> list[str]:
    speed = study.header.get("speed", {}).get(model)
    if not speed:
        return []
    forms = {
        "latency": lambda seconds: f"{float(f'{1e3 * seconds:.3g}'):,g} ms for one image",
        "throughput": lambda rate: f"{float(f'{rate:.3g}'):,g} images/s in batches",
        "memory": lambda size: f"peak memory {size / 2**20:.3g} MiB",
    }
    return [forms[name](value) for name, value in speed.items()]


def _described(
    study: Study, chapter: Chapter, entries: list[Entry], files: Collection[str]
) -> Chapter:
    tables = [
        name.removesuffix(".npz") + ".csv" for entry in entries for name in file_names(entry)
    ]
    return replace(
        chapter,
        sections=tuple(replace(p, steps=_steps(study, chapter, p)) for p in chapter.sections),
        options=entries[0].options,
        images=_images_text(chapter.analysis, entries, _offered(study)),
        seconds={label_of(e.models): e.seconds for e in entries},
        files=tuple(name for name in tables if name in files),
    )


def _steps(
    study: Study, chapter: Chapter, part: SectionContent
) -> dict[str, dict[str, Result]]:
    """The results of a section after so many updates of the trainings, with their losses."""
    by_step = {}
    for step in study.steps:
        entries = [e for e in step.entries if e.analysis == chapter.analysis.name]
        found = {e.models[0]: r for e in entries for r in e.results}
        results = {n: r for n, r in found.items() if type(r) is part.section.result}
        if results:
            numbers = [f"{name} {value:.3g}" for name, value in step.header["metrics"].items()]
            by_step[", ".join([f"step {step.header['step']}", *numbers])] = results
    return by_step if len(by_step) > 1 else {}


def _offered(study: Study) -> int:
    return len(study.positions) or max((o.images for o in _origins(study)), default=0)


def _of_training(entry: Entry) -> bool:
    return Needs.TRAINING_IMAGES in ANALYSES[entry.analysis].needs


def _origins(study: Study) -> list[Provenance]:
    """The provenance of what is measured on evaluation images; of all where nothing is."""
    evaluated = [entry for entry in study.entries if not _of_training(entry)]
    return [r.provenance for e in evaluated or study.entries for r in e.results]


def _measured(study: Study) -> str:
    most = max(origin.images for origin in _origins(study))
    offered = most if all(map(_of_training, study.entries)) else _offered(study)
    return f"{offered}" if most in (0, offered) else f"Up to {most} of {offered}"


def _images_text(analysis: type[Analysis], entries: list[Entry], offered: int) -> str:
    used = max(r.provenance.images for e in entries for r in e.results)
    if not used:
        return "none"
    if Needs.TRAINING_IMAGES in analysis.needs:
        return f"{used} training images"
    return f"all {offered}" if used == offered else f"{used} of {offered}"


def _weights_text(study: Study) -> str:
    weights = study.header.get("weights", {})
    texts = [
        f"{name}: {stored['source']}{', random' * (name in study.header.get('untrained', ()))}"
        + (f", fingerprint {stored['fingerprint']}" if stored["fingerprint"] else "")
        for name, stored in weights.items()
    ]
    note = "Fingerprints are BLAKE2b of parameters, buffers, structure and code."
    return f"{'; '.join(texts)}. {note}" if texts else ""


def _training_text(study: Study) -> str:
    return "; ".join(
        f"{name}: {card.train_images:,} images of {card.data}, {card.epochs} "
        f"epoch{'' if card.epochs == 1 else 's'} of the recipe {card.recipe!r}, "
        f"accuracy {card.accuracy:.1%} on {card.test_images:,} test images"
        for name, card in _cards(study).items()
    )


def _cards(study: Study) -> "dict[str, PretrainedCard]":
    sources = {
        name: stored["source"]
        for name, stored in study.header.get("weights", {}).items()
        if stored["source"] != FROM_PYTHON
    }
    if not sources:
        return {}
    from visprism.models.pretrained import pretrained_cards  # imports timm: seconds

    cards = pretrained_cards()
    return {name: cards[source] for name, source in sources.items() if source in cards}


def _data_text(origin: Provenance) -> str:
    """The data as it was named, and what they are if they are known by name."""
    entry = dict(DATA.items()).get(origin.data.split(" ")[0].partition("?")[0])
    meaning = (entry.__doc__ or "").strip().partition("\n")[0].replace("`", "") if entry else ""
    return ". ".join(filter(None, (origin.data, meaning)))


def _seconds_text(study: Study) -> str:
    if "seconds" not in study.header:
        return ""
    return (
        f"{study.header['seconds']:.1f} in this run. Analyses' seconds add up to more if "
        "they share passes, and include earlier runs"
    )


def _subtitle(study: Study) -> str:
    """Data, number of images, classes, size, seed and date, and what differences are about."""
    results = [r for e in study.entries for r in e.results]
    if not results:
        return ""
    origin = _origins(study)[0]
    classes = next((c for r in results if (c := getattr(r, "classes", 0))), 0)
    name = origin.data.removesuffix(f" ({origin.split})").partition("?")[0] or "unnamed data"
    details = [
        f"{classes} classes" if classes else "",
        "x".join(map(str, origin.image_shape[-2:])),
    ]
    details = ", ".join(filter(None, details))
    number = _measured(study)
    images = f"{origin.split} image{'s' * (number != '1')}".lstrip()
    phrases = [
        f"{number} {images} of {name}" + (f" ({details})" if details else ""),
        f"seed {study.header.get('seed', origin.seed)}",
        origin.created,
    ]
    remarks = f"{_networks(study)}{_unequal_training(study)}{_not_stated(study)}"
    return f"{', '.join(filter(None, phrases))}. {remarks}"


def _preprocessing(study: Study) -> dict[str, str]:
    single = [e for e in study.entries if len(e.models) == 1]
    return {e.models[0]: e.results[0].provenance.preprocessing for e in single if e.results}


def _not_stated(study: Study) -> str:
    """A remark on models whose normalization nothing states."""
    models = [name for name, way in _preprocessing(study).items() if NOT_STATED in way]
    return f" {', '.join(models)}: {NOT_STATED}." if models else ""


def _unequal_training(study: Study) -> str:
    """A remark where models whose training is known saw different numbers of images."""
    number_of = {name: c.train_images * c.epochs for name, c in _cards(study).items()}
    if len(set(number_of.values())) < 2:
        return ""
    if len(study.models) > MOST_CARDS:
        low, *_, high = sorted(number_of.values())
        return f" The models were trained on {low:,} to {high:,} images."
    seen = (f"{number:,} ({name})" for name, number in number_of.items())
    return f" The models were trained on different numbers of images: {', '.join(seen)}."


def _networks(study: Study) -> str:
    untrained = len(study.header.get("untrained", ()))
    verb = "has" if untrained == 1 else "have"
    random = f" {untrained} of {len(study.models)} {verb} random weights." * bool(untrained)
    if len(study.models) > 1:  # the sentences say so
        return random.strip()
    return f"One network: the numbers describe it, not its architecture.{random}"


def _omissions(study: Study) -> list[Omission]:
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


def _manifest(study: Study) -> dict[str, str]:
    origin = next(iter(_origins(study)), Provenance())
    budget = study.header.get("budget")
    unreadable = study.header.get("unreadable", ())
    entries = {
        "Models": ", ".join(study.models),
        "Weights": _weights_text(study),
        "Not covered": " ".join(f"{m}: {' '.join(t)}" for m, t in study.notes.items()),
        "Training of the models": _training_text(study),
        "Data": _data_text(origin),
        "Split": origin.split,
        "Images": f"{_offered(study)}, in a random order that is balanced over classes",
        "Unreadable images left out": f"{len(unreadable)}: {', '.join(unreadable)}"
        * bool(unreadable),
        "Preprocessing": "; ".join(f"{k}: {v}" for k, v in _preprocessing(study).items()),
        "Image shape": "x".join(map(str, origin.image_shape)),
        "Images, digest": str(study.header.get("images", "")),
        "Training images, digest": str(study.header.get("training images", "")),
        "Seed": str(study.header.get("seed", origin.seed)),
        "Precision": origin.precision,
        "Device": origin.device,
        "Processes": str(origin.processes),
        "Command": origin.command,
        "Date": origin.created,
        "Machine": study.header.get("machine", ""),
        "Effort": study.header.get("effort", ""),
        # It decides what is measured, not the number of images.
        "Time limit": "" if budget is None else f"{budget / 60:.3g} min",
        "Seconds": _seconds_text(study),
        "visprism": origin.visprism,
        "Git revision": study.header.get("revision", ""),
        "torch": origin.torch,
        "Python": origin.python,
    }
    return {fact: value for fact, value in entries.items() if value}


class _Table:
    """The table and the summary of a study as a report shows them."""

    def __init__(self, study: Study, chapters: Mapping[str, Chapter]) -> None:
        self.study = study
        self.chapters = chapters  # by analysis
        self.rows = study.table()
        self.lines = glance_of(self.rows, study.models)
        self._origins = {
            (answer.question, answer.quantity): (entry.analysis, type(result))
            # The first one that answers a question decides.
            for entry in reversed(study.entries)
            for answer, result in reversed(answers_of(entry.results))
        }
        self._failures = {(f.model, f.analysis): f.reason for f in study.failures}
        self._reasons = dict(_reasons(study))

    def questions(self) -> list[QuestionRows]:
        """Every question; rows that differ only in the part of the model are one measure."""
        grouped: dict[str, dict[str, list[Row]]] = {}
        for row in self.rows:
            grouped.setdefault(row.question, {}).setdefault(row.measure, []).append(row)
        return [
            QuestionRows(
                question_of(text),
                [self._measure(rows) for rows in measures.values()],
                _claim([row for rows in measures.values() for row in rows]),
            )
            for text, measures in grouped.items()
        ]

    def sentences(self) -> list[str]:
        """The largest differences, and what they do not show."""
        sentences = sentences_of(self.lines, self.study.models)
        return [*sentences, _ONE_NETWORK] if len(self.study.models) > 1 else []

    def glance(self) -> list[GlanceRow]:
        """The first rows of the page, with the sections that they are about."""
        return [
            GlanceRow(
                line.label,
                line.cells,
                line.better,
                line.reason,
                {m: _scaled(answer) for m, answer in line.answers.items()},
                direction=line.question.better,
                percent=line.question.better == "higher"
                and any(a.unit == "%" for a in line.answers.values()),
                anchor=self._anchor(line.rows[0]),
                images=images_of(line.rows[:1]),
            )
            for line in self.lines
        ]

    def _measure(self, rows: Sequence[Row]) -> Measure:
        of_models = any(row.cells for row in rows)  # not of two models together
        cells = {m: self._cells(rows, m) for m in self.study.models} if of_models else {}
        differences = [_comparison(row) for row in rows if row.differences]
        unit = "points" if rows[0].unit == POINTS else rows[0].unit
        return Measure(rows[0].measure, cells, differences, images_of(rows), unit)

    def _cells(self, rows: Sequence[Row], model: str) -> list[Cell]:
        answers = [(row, row.cells[model]) for row in rows if model in row.cells]
        if not answers:
            return [self._empty(rows[0], model)]
        return [
            Cell(
                _without_unit(
                    answer.number if answer.subject and not answer.measure else str(answer),
                    answer.unit,
                ),
                answer.verdict,
                anchor=self._anchor(row),
                subject=answer.subject,
                reading=answer.reading,
            )
            for row, answer in answers
        ]

    def _empty(self, row: Row, model: str) -> Cell:
        analysis, kind = self._origins[row.question, row.quantity]
        failure = self._failures.get((model, analysis))
        reason = failure or self._reasons.get((model, kind))
        if (
            model in self.study.header.get("untrained", ())
            and question_of(row.question).of_labels
        ):
            reason = "random weights"
        reason = reason or "the analysis gives no such number for this model"
        anchor = self._anchor(row)
        return Cell("", "not applicable", reason, failed=failure is not None, anchor=anchor)

    def _anchor(self, row: Row) -> str:
        analysis, kind = self._origins[row.question, row.quantity]
        return self.chapters[analysis].anchor_of(kind)


def _reasons(study: Study) -> Iterator[tuple[tuple[str, type[Result]], str]]:
    """Why results have no number, by model and type, where they state it."""
    for entry in study.entries:
        for result in entry.results:
            reason = getattr(result, "reason", "")
            if isinstance(reason, str) and reason and len(entry.models) == 1:
                yield (entry.models[0], type(result)), reason.rstrip(".")


def _comparison(row: Row) -> Comparison:
    difference = row.difference
    return Comparison(
        _without_unit(_without_unit(row.difference_value(), row.unit), POINTS),
        significant=difference is not None and bool(row.cells) and difference.significant,
        remark="" if difference is None else difference.remark,
        subject=next((a.subject for a in row.cells.values() if a.measure), ""),
        mark="" if difference is None else difference.verdict,
    )


def _without_unit(text: str, unit: str) -> str:
    """Only the number: the unit stands once, under the question."""
    return text if unit in ("", "%") else text.replace(f" {unit}", "")


def _claim(rows: Sequence[Row]):
    codes = [
        judged.claim
        for row in rows
        for judged in (*row.cells.values(), *row.differences.values())
        if judged.claim and judged.verdict
    ]
    return PAPER_CLAIMS.get(codes[0]) if codes else None
