"""Studies of the same images by several jobs, as one study."""

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from visprism.core.errors import InputError
from visprism.kit.analysis import ANALYSES, Analysis
from visprism.kit.needs import Needs
from visprism.report.rows import pairs_of
from visprism.study.record import Entry, Failure, Header, StudyRecord
from visprism.study.store import Store

# Fields of the header that make two studies the same, and what they are called.
_SAME = {
    "images": "images",
    "number of images": "number of images",
    "positions": "order of images",
    "training images": "training images",
    "seed": "seed",
    "revision": "commit of visprism",
}
_JOINED = ("weights", "notes", "speed", "outputs", "sizes")  # mappings
_SIZES = (
    "An effort decides it by the costliest model of a study; effort full with a limit does not."
)
_JOINT = (
    "it measures two models in one process. Run examine with the models of all studies and "
    "the merged folder as out: what is stored is not measured again."
)


def merged(studies: Sequence[StudyRecord], order: Sequence[str] = ()) -> StudyRecord:
    """Join several studies, with the models in `order` first; see `Study.merge`."""
    if not studies:
        raise InputError("studies must be at least one study, got none")
    first = studies[0]
    for study in studies[1:]:
        _check_header(first, study)
    _check_entries([entry for study in studies for entry in study.entries])
    models = [name for study in studies for name in study.models]
    models.sort(key=lambda name: order.index(name) if name in order else len(order))
    repeated = sorted({name for name in models if models.count(name) > 1})
    if repeated:
        raise InputError(
            f"models must have different names, and {repeated[0]} is in two studies. Leave one "
            "out, or name the models by labels in a study file."
        )
    measured = [entry for study in studies for entry in study.entries]
    analyses = list(dict.fromkeys([*ANALYSES, *(entry.analysis for entry in measured)]))
    entries = sorted(measured, key=lambda entry: analyses.index(entry.analysis))
    failures = [failure for study in studies for failure in study.failures]
    failures += [
        Failure("pairs of models", a, _JOINT, "skipped") for a in _joint(models, entries)
    ]
    headers = [study.header for study in studies]
    maps: list[dict[str, Any]] = [dict(h) for h in headers]
    joined: Any = {n: dict(chain(*(m.get(n, {}).items() for m in maps))) for n in _JOINED}
    header: Header = {
        **first.header,
        **joined,
        "models": models,
        "failures": [failure.stored() for failure in failures],
        "keys": [entry.key for entry in entries],
        "untrained": [name for h in headers for name in h.get("untrained", ())],
        "seconds": sum(h.get("seconds", 0.0) for h in headers),
        "machine": "; ".join(dict.fromkeys(h["machine"] for h in headers if "machine" in h)),
    }
    return StudyRecord(tuple(models), tuple(entries), tuple(failures), header)


def with_stored(study: StudyRecord, store: Store, before: Header) -> StudyRecord:
    """A study, with what its folder held before of models that are not in it.

    Args:
        study: that was measured now.
        store: of the folder.
        before: the header of the folder before the study.
    """
    stored = {(*e["models"], e["analysis"]): key for key, e in store.entries.items()}
    keys = before.get("keys", list(stored.values()))
    names = [
        *before.get("models", ()),
        *(m for key in keys for m in store.entries[key]["models"]),
    ]
    others = tuple(dict.fromkeys(name for name in names if name not in study.models))
    if not others:
        return study
    now = study.header["weights"]
    same = {n for n, w in before.get("weights", {}).items() if n in now and w == now[n]}
    models = {key: {*store.entries[key]["models"]} for key in keys}
    kept = [k for k, m in models.items() if not m <= {*study.models} and m <= {*others, *same}]
    failures = [Failure(**f) for f in before.get("failures", ()) if f["model"] in others]
    failures += [store.lost(key) for key in kept if not store.get(key)]
    of_run: Header = {
        "effort": study.header["effort"],
        "budget": study.header["budget"],
        "seconds": 0.0,
    }
    untrained = [name for name in before.get("untrained", ()) if name in others]
    earlier = StudyRecord(
        others,
        tuple(store.entry(key) for key in kept if store.get(key)),
        tuple(dict.fromkeys(failures)),
        {**study.header, **before, **of_run, "untrained": untrained},
    )
    try:
        both = merged([earlier, study], before.get("models", ()))
    except InputError as error:
        hidden = f"{', '.join(others)}: stored in this folder and not shown, since {error}"
        both = replace(study, header={**study.header, "alarms": [hidden]})
    store.header.update(both.header)
    store.write()
    return both


def _joint(models: Sequence[str], entries: Sequence[Entry]) -> list[str]:
    """The analyses that compare two models together, and lack a pair."""
    of = {name: {e.models for e in entries if e.analysis == name} for name in ANALYSES}
    return [
        name
        for name, measured in of.items()
        if ANALYSES[name].compare is not Analysis.compare
        and any(
            {(a,), (b,)} <= measured and (a, b) not in measured for a, b in pairs_of(models)
        )
    ]


def _check_header(first: StudyRecord, other: StudyRecord) -> None:
    for study in (first, other):
        if "positions" not in study.header:
            raise InputError(
                f"the study of {_names(study)} must be complete, and was interrupted. The same "
                "command resumes it."
            )
    for name, text in _SAME.items():
        if first.header.get(name) != other.header.get(name):
            raise InputError(
                f"studies must be of the same images in the same order, by one seed and one "
                f"version, and the {text} of the study of {_names(other)} and of the "
                f"study of {_names(first)} differ. Measure its models again in the same way."
            )


def _check_entries(entries: Sequence[Entry]) -> None:
    ways: dict[str, tuple[Entry, dict[str, Any]]] = {}
    for entry in entries:
        way = _way(entry)
        # Batches have more images where images are smaller; features are read in equal ones.
        shape = entry.results[0].provenance.image_shape
        key = f"{entry.analysis} {len(entry.models)} {shape if 'batch size' in way else ''}"
        before, expected = ways.setdefault(key, (entry, way))
        for name, value in way.items():
            if value != expected[name]:
                remedy = _SIZES if name == "number of images" else "Measure them alike."
                raise InputError(
                    f"{entry.analysis} must have the same {name} in all studies, got "
                    f"{expected[name]} for {' and '.join(before.models)} and {value} for "
                    f"{' and '.join(entry.models)}. {remedy}"
                )


def _way(entry: Entry) -> dict[str, Any]:
    """What two results of an analysis must have in common to be compared."""
    origin = entry.results[0].provenance
    way: dict[str, Any] = {
        "options": json.dumps(dict(entry.options), sort_keys=True),
        "number of images": entry.images,
        "precision": origin.precision,
        "version of visprism": origin.visprism,
        "version of torch": origin.torch,
    }
    if entry.analysis in ANALYSES and Needs.FEATURES in ANALYSES[entry.analysis].needs:
        way["batch size"] = origin.batch_size
    return way


def _names(study: StudyRecord) -> str:
    more = len(study.models) - 2
    return ", ".join(study.models[:2]) + (f" and {more} more" if more > 0 else "")
