"""Files of a study: saved and loaded again, and written as a report with figures."""

import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from visprism.core.errors import InputError
from visprism.core.files import is_file, output_folder, write_text
from visprism.core.run import Progress
from visprism.drawing.save import check_formats
from visprism.report import PageFigures, page_html, rendered
from visprism.study.exports import json_of, markdown_of
from visprism.study.report_content import content_of
from visprism.study.store import INDEX, Store, path_inside, read_index
from visprism.study.study import Entry, Failure, Study
from visprism.table.result import Result
from visprism.table.stored import UnknownTypeError

_WRITTEN = ".visprism"  # names of the figures that are ours

__all__ = ["load_study", "markdown_of", "save_study", "write_files", "write_report"]


def save_study(study: Study, folder: Path) -> None:
    """Write every result and the index, all of them or none.

    The folder is what `examine` with `out` leaves, so that the same call resumes it.

    Raises:
        InputError: if the folder cannot be written to.
        OutputError: if the disk is full.
    """
    keys = [entry.key or f"entry {number}" for number, entry in enumerate(study.entries)]
    header = {
        **study.header,
        "models": list(study.models),
        "failures": [vars(failure) for failure in study.failures],
        "keys": keys,
    }
    with output_folder(folder, last=INDEX) as scratch:
        store = Store(scratch, header)
        for key, entry in zip(keys, study.entries, strict=True):
            store.put(
                key,
                entry.results,
                model="-and-".join(entry.models),
                models=list(entry.models),
                analysis=entry.analysis,
                options=dict(entry.options),
                images=entry.images,
                seconds=entry.seconds,
            )
        store.write()


def load_study(folder: Path) -> Study:
    """The study that a folder holds, also one that was interrupted.

    Results of plug-ins that are not installed are left out, and listed as failures.
    """
    index = folder / INDEX
    if not is_file(index):
        raise InputError(f"{folder} must hold a study, and has no {INDEX}")
    content = read_index(index)
    header, stored = content["header"], content["entries"]
    try:
        keys = header.get("keys") or list(stored)
        loaded = [_entry(folder, key, stored[key]) for key in keys]
        failures = [Failure(**values) for values in header.get("failures", ())]
        by_model = (stored[key]["models"] for key in keys)
        measured = dict.fromkeys(m[0] for m in by_model if len(m) == 1)
        models = tuple(header.get("models", measured))
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{index} must be the index of a study ({error!r})") from error
    failures += [entry for entry in loaded if isinstance(entry, Failure)]
    entries = tuple(entry for entry in loaded if isinstance(entry, Entry))
    return Study(models, entries, tuple(dict.fromkeys(failures)), header)


def write_report(study: Study, path: Path) -> None:
    """Write the report as one HTML page, whole or not at all.

    Tables of the study that stand in ``results`` beside the page are linked.
    """
    try:
        is_folder, has_folder = path.is_dir(), path.parent.is_dir()
    except OSError as error:  # of a folder that may not be entered
        raise InputError(
            f"path must be a file that can be written, got {path} ({error.strerror})"
        ) from error
    if is_folder or not has_folder:
        reason = "a folder" if is_folder else "its folder does not exist"
        raise InputError(f"path must be a file that can be written, got {path} ({reason})")
    content = content_of(study, files=_tables_beside(path))
    figures = PageFigures(content)
    for drawing, files in rendered(content, ["svg"]):
        figures.add(drawing, files["svg"].decode())
    try:
        write_text(path, page_html(content, figures))
    except OSError as error:
        raise InputError(
            f"path must be a file that can be written, got {path} ({error.strerror})"
        ) from error


def write_files(
    study: Study,
    folder: Path,
    formats: Sequence[str] = ("png",),
    *,
    progress: Progress | None = None,
) -> None:
    """Write ``report.html``, ``study.md``, ``results.json`` and the figures, all or none.

    Each figure is drawn once; the page and its files are made from that. Figures of an earlier
    study, which ``figures/.visprism`` lists, are removed; other files in ``figures`` stay.

    Args:
        study: what to write.
        folder: tables in its ``results`` are linked from the page.
        formats: of the files in ``figures``: "png", "svg", "pdf".
        progress: shows how many figures are drawn.

    Raises:
        InputError: if the folder cannot be written to, a format is unknown, or an analysis is
            not registered.
        OutputError: if the disk is full.
    """
    formats = check_formats(formats)
    with output_folder(folder, replaced=["figures"], last="report.html") as scratch:
        content = content_of(study, files=_tables_beside(folder / "report.html"))
        figures = PageFigures(content)
        _keep_other_files(folder, scratch)
        names = []
        kinds = ["svg", *(f for f in formats if f != "svg")]
        for drawing, files in rendered(content, kinds, progress=progress):
            figures.add(drawing, files["svg"].decode())
            for format in formats:
                names.append(f"{drawing.stem}.{format}")
                (scratch / "figures" / names[-1]).write_bytes(files[format])
        write_text(scratch / "figures" / _WRITTEN, "\n".join([*names, ""]))
        write_text(scratch / "report.html", page_html(content, figures))
        write_text(scratch / "study.md", markdown_of(study))
        write_text(scratch / "results.json", json_of(study))


def _keep_other_files(folder: Path, scratch: Path) -> None:
    """Copy what somebody else put into ``figures``, since the folder is replaced."""
    (scratch / "figures").mkdir()
    written = folder / "figures" / _WRITTEN
    earlier = written.read_text("utf-8").splitlines() if written.is_file() else []
    for path in (folder / "figures").glob("*"):
        if path.is_dir():
            shutil.copytree(path, scratch / "figures" / path.name)
        elif path.name not in (*earlier, _WRITTEN):
            shutil.copy2(path, scratch / "figures")


def _entry(folder: Path, key: str, values: Mapping[str, Any]) -> Entry | Failure:
    models = tuple(values["models"])
    try:
        results = tuple(_result(folder, name) for name in values["files"])
    except UnknownTypeError as error:
        return Failure(" and ".join(models), values["analysis"], error.reason)
    return Entry(
        models=models,
        analysis=values["analysis"],
        results=results,
        options=values["options"],
        images=values["images"],
        seconds=values["seconds"],
        key=key,
    )


def _result(folder: Path, name: str) -> Result:
    path = path_inside(folder, name)
    if not path.is_file():
        raise InputError(
            f"{folder} must hold a complete study, and {name} is missing. Run the study again "
            "with this folder as out to measure it again."
        )
    return Result.load(path)


def _tables_beside(path: Path) -> Collection[str]:
    return frozenset(_csv_names(path.parent))


def _csv_names(folder: Path) -> Iterator[str]:
    for file in folder.glob("results/*.csv"):
        yield f"results/{file.name}"
