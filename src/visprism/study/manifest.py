"""What the report says about a study as a whole: its subtitle, and how it was made."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from visprism.core.preprocessing import NOT_STATED
from visprism.core.provenance import Provenance
from visprism.images.image_set import DATA
from visprism.kit.analysis import ANALYSES
from visprism.kit.needs import Needs
from visprism.report.content import MOST_CARDS
from visprism.study.record import FROM_PYTHON, Entry, StudyRecord

if TYPE_CHECKING:
    from visprism.models.pretrained import PretrainedCard


def offered(study: StudyRecord) -> int:
    """How many images the study has, of which analyses measure the first ones."""
    return len(study.positions) or max((o.images for o in _origins(study)), default=0)


def _of_training(entry: Entry) -> bool:
    return Needs.TRAINING_IMAGES in ANALYSES[entry.analysis].needs


def _origins(study: StudyRecord) -> list[Provenance]:
    """The provenance of what is measured on evaluation images; of all where nothing is."""
    evaluated = [entry for entry in study.entries if not _of_training(entry)]
    return [r.provenance for e in evaluated or study.entries for r in e.results]


def _measured(study: StudyRecord) -> str:
    most = max(origin.images for origin in _origins(study))
    every = most if all(map(_of_training, study.entries)) else offered(study)
    return f"{every}" if most in (0, every) else f"up to {most} of {every}"


def _weights_text(study: StudyRecord) -> str:
    weights = study.header.get("weights", {})
    texts = [
        f"{name}: {stored['source']}{', random' * (name in study.header.get('untrained', ()))}"
        + (f", fingerprint {stored['fingerprint']}" if stored["fingerprint"] else "")
        for name, stored in weights.items()
    ]
    note = "Fingerprints are BLAKE2b of parameters, buffers, structure and code."
    return f"{'; '.join(texts)}. {note}" if texts else ""


def _training_text(study: StudyRecord) -> str:
    return "; ".join(
        f"{name}: {card.train_images:,} images of {card.data}, {card.epochs} "
        f"epoch{'' if card.epochs == 1 else 's'} of the recipe {card.recipe!r}, "
        f"accuracy {card.accuracy:.1%} on {card.test_images:,} test images"
        for name, card in _cards(study).items()
    )


def _cards(study: StudyRecord) -> "dict[str, PretrainedCard]":
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


def _notes_text(notes: Mapping[str, Sequence[str]]) -> str:
    """Notes on the data, with the models that a note is about if it is not about all."""
    models: dict[str, list[str]] = {}
    for model, texts in notes.items():
        for text in texts:
            models.setdefault(text, []).append(model)
    return "; ".join(
        text if len(names) == len(notes) else f"{', '.join(names)}: {text}"
        for text, names in models.items()
    )


def _seconds_text(study: StudyRecord) -> str:
    if "seconds" not in study.header:
        return ""
    return (
        f"{study.header['seconds']:.1f} in this run. Analyses' seconds add up to more if "
        "they share passes, and include earlier runs"
    )


def subtitle(study: StudyRecord) -> str:
    """Data, number of images, size, seed and date, and what differences are about."""
    results = [r for e in study.entries for r in e.results]
    if not results:
        return ""
    origin = _origins(study)[0]
    name = origin.data.removesuffix(f" ({origin.split})").partition("?")[0] or "unnamed data"
    size = "x".join(map(str, origin.image_shape[-2:]))
    number = _measured(study)
    images = f"{origin.split} image{'s' * (number != '1')}".lstrip()
    quick = study.header.get("effort") == "quick"
    phrases = [
        "quick effort (--effort standard measures more images)" * quick,
        f"{number} {images} of {name}" + (f" ({size})" if size else ""),
        f"seed {study.header.get('seed', origin.seed)}",
        origin.created,
    ]
    remarks = f"{_networks(study)}{_unequal_training(study)}{_not_stated(study)}"
    return f"{', '.join(filter(None, phrases))}. {remarks}"


def _preprocessing(study: StudyRecord) -> dict[str, str]:
    single = [e for e in study.entries if len(e.models) == 1]
    return {e.models[0]: e.results[0].provenance.preprocessing for e in single if e.results}


def _not_stated(study: StudyRecord) -> str:
    """A remark on models whose normalization nothing states."""
    models = [name for name, way in _preprocessing(study).items() if NOT_STATED in way]
    return f" {', '.join(models)}: {NOT_STATED}." if models else ""


def _unequal_training(study: StudyRecord) -> str:
    """A remark where models whose training is known saw different numbers of images."""
    number_of = {name: c.train_images * c.epochs for name, c in _cards(study).items()}
    if len(set(number_of.values())) < 2:
        return ""
    if len(study.models) > MOST_CARDS:
        low, *_, high = sorted(number_of.values())
        return f" The models were trained on {low:,} to {high:,} images."
    seen = (f"{number:,} ({name})" for name, number in number_of.items())
    return f" The models were trained on different numbers of images: {', '.join(seen)}."


def _networks(study: StudyRecord) -> str:
    untrained = len(study.header.get("untrained", ()))
    verb = "has" if untrained == 1 else "have"
    random = f" {untrained} of {len(study.models)} {verb} random weights." * bool(untrained)
    if len(study.models) > 1:  # the sentences say so
        return random.strip()
    return f"One network: the numbers describe it, not its architecture.{random}"


def manifest(study: StudyRecord) -> dict[str, str]:
    """How the study was made, by fact."""
    origin = next(iter(_origins(study)), Provenance())
    budget = study.header.get("budget")
    unreadable = study.header.get("unreadable", ())
    entries = {
        "Models": ", ".join(study.models),
        "Weights": _weights_text(study),
        "Not covered": " ".join(f"{m}: {' '.join(t)}" for m, t in study.notes.items()),
        "Training of the models": _training_text(study),
        "Data": _data_text(origin),
        "Data, notes": _notes_text(study.header.get("data notes", {})),
        "Task": origin.task,
        "Split": origin.split,
        "Images": f"{offered(study)}, in a random order, stratified by class",
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
