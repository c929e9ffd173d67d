"""Files of a study to read: its report with figures, and the exports."""

import shutil
from collections.abc import Collection, Sequence
from pathlib import Path

from visprism.core.errors import InputError
from visprism.core.files import output_folder, write_text
from visprism.core.run import Progress
from visprism.drawing.save import check_formats
from visprism.report.drawings import rendered
from visprism.report.page import PageFigures, page_html
from visprism.study.exports import json_of, markdown_of
from visprism.study.report_content import content_of
from visprism.study.study import Study

_WRITTEN = ".visprism"  # names of the figures that are ours


def write_report(study: Study, path: Path) -> None:
    """Write the report as one HTML page, whole or not at all.

    Tables of the study that stand in ``results`` next to the page are linked.
    """
    refused = f"path must be a file that can be written, got {path}"
    try:
        if path.is_dir():
            raise InputError(f"{refused} (a folder)")
        if not path.parent.is_dir():
            raise InputError(f"{refused} (its folder does not exist)")
    except OSError as error:  # of a folder that may not be entered
        raise InputError(f"{refused} ({error.strerror})") from error
    content = content_of(study, files=_tables_beside(path))
    figures = PageFigures(content)
    for drawing, files in rendered(content, ["svg"]):
        figures.add(drawing, files["svg"].decode())
    try:
        write_text(path, page_html(content, figures))
    except OSError as error:
        raise InputError(f"{refused} ({error.strerror})") from error


def write_files(
    study: Study,
    folder: Path,
    formats: Sequence[str] = ("svg",),
    *,
    footer: bool = False,
    progress: Progress | None = None,
) -> None:
    """Write ``report.html``, ``study.md``, ``results.json`` and the figures, all or none.

    Each figure is drawn once; the page and its files are made from that. Figures of an earlier
    study, which ``figures/.visprism`` lists, are removed; other files in ``figures`` stay.
    """
    formats = check_formats(formats)
    with output_folder(folder, replaced=["figures"], last="report.html") as scratch:
        content = content_of(study, files=_tables_beside(folder / "report.html"))
        figures = PageFigures(content)
        _keep_other_files(folder, scratch)
        names = []
        kinds = ["svg", *(f for f in formats if f != "svg")]
        for drawing, files in rendered(content, kinds, footer=footer, progress=progress):
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


def _tables_beside(path: Path) -> Collection[str]:
    return frozenset(f"results/{file.name}" for file in path.parent.glob("results/*.csv"))
