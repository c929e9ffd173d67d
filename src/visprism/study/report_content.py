"""What the report shows of a study: its table, its results by section, its manifest."""

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from visprism.analyses import ANALYSES, Analysis, Needs
from visprism.core.provenance import Provenance
from visprism.data.image_set import DATA
from visprism.report import Chapter, Content, Omission, chapters_of
from visprism.report.content import label_of
from visprism.study.report_table import ReportTable
from visprism.study.store import file_names
from visprism.study.study import FROM_PYTHON, Entry, Study

if TYPE_CHECKING:
    from visprism.models.pretrained import PretrainedCard

_MOST_NAMES = 3  # of models in a title


def content_of(study: Study, *, title: str = "", files: Collection[str] = ()) -> Content:
    """The content of the report of a study.

    Args:
        study: what to show.
        title: heading of the page; the names or the number of the models where it is empty.
        files: tables that stand beside the page, relative to it; those of the study are linked.
    """
    by_analysis: dict[str, list[Entry]] = {}
    for entry in study.entries:
        by_analysis.setdefault(entry.analysis, []).append(entry)
    chapters = [
        _described(chapter, by_analysis[chapter.analysis.name], files, _offered(study))
        for chapter in chapters_of(
            {name: {e.models: e.results for e in es} for name, es in by_analysis.items()}
        )
    ]
    table = ReportTable(study, {c.analysis.name: c for c in chapters})
    return Content(
        title=title or _title(study),
        models=study.models,
        questions=table.questions(),
        summary=table.summary(),
        subtitle=_subtitle(study),
        chapters=chapters,
        omissions=_omissions(study),
        manifest=_manifest(study),
    )


def _title(study: Study) -> str:
    """Names of the models; their number where there are many."""
    if len(study.models) > _MOST_NAMES:
        return f"{len(study.models)} models"
    return ", ".join(study.models)


def _described(
    chapter: Chapter, entries: list[Entry], files: Collection[str], offered: int
) -> Chapter:
    tables = [
        name.removesuffix(".npz") + ".csv" for entry in entries for name in file_names(entry)
    ]
    return replace(
        chapter,
        options=entries[0].options,
        images=_images_text(chapter.analysis, entries, offered),
        seconds={label_of(e.models): e.seconds for e in entries},
        files=tuple(name for name in tables if name in files),
    )


def _offered(study: Study) -> int:
    """Number of evaluation images that analyses could use."""
    measured = [r.provenance.images for e in study.entries for r in e.results]
    return len(study.positions) or max(measured, default=0)


def _measured(study: Study) -> str:
    """The largest number of evaluation images that an analysis measured, of how many."""
    numbers = [
        result.provenance.images
        for entry in study.entries
        for result in entry.results
        if Needs.TRAINING_IMAGES not in ANALYSES[entry.analysis].needs
    ]
    most, offered = max(numbers, default=0), _offered(study)
    return f"{offered}" if most in (0, offered) else f"Up to {most} of {offered}"


def _images_text(analysis: type[Analysis], entries: list[Entry], offered: int) -> str:
    """How many images were measured of how many, and why not all."""
    used = max(r.provenance.images for e in entries for r in e.results)
    if not used:
        return "none"
    if Needs.TRAINING_IMAGES in analysis.needs:
        return f"{used} training images"
    if used == offered:
        return f"all {offered}"
    most = analysis.max_images
    reason = "at most, by design" if most is not None and used == most else "by the time budget"
    return f"{used} of {offered}, {reason}"


def _weights_text(study: Study) -> str:
    """Source and fingerprint of each model."""
    weights = study.header.get("weights", {})
    texts = [
        f"{name}: {stored['source']}{', random' * (name in study.header.get('untrained', ()))}"
        + (f", fingerprint {stored['fingerprint']}" if stored["fingerprint"] else "")
        for name, stored in weights.items()
    ]
    note = "Fingerprints are BLAKE2b of parameters, buffers, structure and code."
    return f"{'; '.join(texts)}. {note}" if texts else ""


def _training_text(study: Study) -> str:
    """How the models whose weights ship with the package were trained."""
    return "; ".join(
        f"{name}: {card.train_images:,} images of {card.data}, {card.epochs} "
        f"epoch{'' if card.epochs == 1 else 's'} of the recipe {card.recipe!r}, "
        f"accuracy {card.accuracy:.1%} on {card.test_images:,} test images"
        for name, card in _cards(study).items()
    )


def _cards(study: Study) -> "dict[str, PretrainedCard]":
    """Of each model whose weights ship with the package."""
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


def _budget_text(study: Study) -> str:
    """The limit on the time, which decides how many images are measured."""
    if "budget" not in study.header:
        return ""
    seconds = study.header["budget"]
    if seconds is None:
        return "none"
    return (
        f"{seconds / 60:.3g} min. A slower machine measures fewer images where the budget "
        "limits their number"
    )


def _seconds_text(study: Study) -> str:
    """The time of all measurements."""
    if "seconds" not in study.header:
        return ""
    return (
        f"{study.header['seconds']:.1f} in this run. Those of analyses add up to more where "
        "they share passes, and include earlier runs"
    )


def _subtitle(study: Study) -> str:
    """Data, number of images, classes, size, seed and date, and what differences are about."""
    results = [r for e in study.entries for r in e.results]
    if not results:
        return ""
    origin = results[0].provenance
    classes = next((c for r in results if (c := getattr(r, "classes", 0))), 0)
    name = origin.data.removesuffix(f" ({origin.split})").partition("?")[0] or "unnamed data"
    details = [
        f"{classes} classes" if classes else "",
        "x".join(map(str, origin.image_shape[-2:])),
    ]
    details = ", ".join(filter(None, details))
    phrases = [
        f"{_measured(study)}{f' {origin.split}' if origin.split else ''} images of {name}"
        + (f" ({details})" if details else ""),
        f"seed {study.header.get('seed', origin.seed)}",
        origin.created,
    ]
    return f"{', '.join(filter(None, phrases))}. {_networks(study)}{_unequal_training(study)}"


def _unequal_training(study: Study) -> str:
    """A remark where models whose training is known saw different numbers of images."""
    number_of = {name: c.train_images * c.epochs for name, c in _cards(study).items()}
    if len(set(number_of.values())) < 2:
        return ""
    seen = (f"{number:,} ({name})" for name, number in number_of.items())
    return f" They were trained on different numbers of images: {', '.join(seen)}."


def _networks(study: Study) -> str:
    """Which networks the study is about."""
    untrained = len(study.header.get("untrained", ()))
    verb = "has" if untrained == 1 else "have"
    random = f" {untrained} of {len(study.models)} {verb} random weights." * bool(untrained)
    if len(study.models) == 1:
        return f"One network: numbers are its own, not those of an architecture.{random}"
    return (
        "One network of each kind: differences are those of these networks, not of "
        f"architectures.{random}"
    )


def _omissions(study: Study) -> list[Omission]:
    """Failures, with models that share analysis and reason together; errors come first."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for f in study.failures:
        groups.setdefault((f.analysis, f.reason, f.kind), []).append(f.model)
    omissions = [
        Omission(analysis, tuple(models), reason, kind)
        for (analysis, reason, kind), models in groups.items()
    ]
    return sorted(omissions, key=lambda o: ["failed", "no time", "skipped"].index(o.kind))


def _manifest(study: Study) -> dict[str, str]:
    """Facts about the study, with their values as text."""
    origin = next((r.provenance for e in study.entries for r in e.results), Provenance())
    entries = {
        "Models": ", ".join(study.models),
        "Weights": _weights_text(study),
        "Training of the models": _training_text(study),
        "Data": _data_text(origin),
        "Split": origin.split,
        "Images": f"{_offered(study)}, in a random order that is balanced over classes",
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
        "Time budget": _budget_text(study),
        "Seconds": _seconds_text(study),
        "visprism": origin.visprism,
        "Git revision": study.header.get("revision", ""),
        "torch": origin.torch,
        "Python": origin.python,
    }
    return {fact: value for fact, value in entries.items() if value}
