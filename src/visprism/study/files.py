"""Files of a study to read: its report with figures, and the exports."""

from collections.abc import Collection, Sequence
from pathlib import Path

from visprism.core.files import is_of_user, make_folder, output_folder, write_text
from visprism.core.run import Progress
from visprism.drawing.save import check_formats
from visprism.report.drawings import rendered
from visprism.report.page import PageFigures, page_html
from visprism.study.exports import json_of, markdown_of
from visprism.study.record import StudyRecord
from visprism.study.report_content import content_of

_WRITTEN = ".visprism"  # names of the figures that are ours


def write_report(study: StudyRecord, path: Path) -> None:
    """Write the report as one HTML page, whole or not at all.

    Tables of the study that stand in ``results`` next to the page are linked.
    """
    content = content_of(study, files=_tables_beside(path))
    figures = PageFigures(content)
    for drawing, files in rendered(content, ["svg"]):
        figures.add(drawing, files["svg"].decode())
    write_text(path, page_html(content, figures))


def write_files(
    study: StudyRecord,
    folder: Path,
    formats: Sequence[str] = ("svg",),
    *,
    progress: Progress | None = None,
) -> None:
    """Write ``study.md`` and ``results.json``, then the figures and ``report.html``.

    Numbers need little and come first; figures and page are written all or none. Each figure is
    drawn once; the page and its files are made from that. Figures of an earlier study, which
    ``figures/.visprism`` lists, are removed; other files in ``figures`` stay.
    """
    formats = check_formats(formats)
    written = folder / "figures" / _WRITTEN
    earlier = written.read_text("utf-8").splitlines() if is_of_user(written) else []
    make_folder(folder)
    write_text(folder / "study.md", markdown_of(study))
    write_text(folder / "results.json", json_of(study))
    with output_folder(folder, last="report.html") as scratch:
        content = content_of(study, files=_tables_beside(folder / "report.html"))
        figures = PageFigures(content)
        (scratch / "figures").mkdir()
        names = []
        kinds = ["svg", *(f for f in formats if f != "svg")]
        for drawing, files in rendered(content, kinds, progress=progress):
            figures.add(drawing, files["svg"].decode())
            for format in formats:
                names.append(f"{drawing.stem}.{format}")
                (scratch / "figures" / names[-1]).write_bytes(files[format])
        write_text(scratch / "figures" / _WRITTEN, "\n".join([*names, ""]))
        write_text(scratch / "report.html", page_html(content, figures))
    for path in (folder / "figures").iterdir():
        if path.name in {*earlier} - {*names}:
            path.unlink()


def _tables_beside(path: Path) -> Collection[str]:
    return frozenset(f"results/{file.name}" for file in path.parent.glob("results/*.csv"))
