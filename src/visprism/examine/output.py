"""Output: examinations as files, all of them or none."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from visprism.core.errors import InputError
from visprism.figures import panel, save_figure
from visprism.measure.features import Similarity
from visprism.report import Examination, drawings, file_name, render
from visprism.report.examination import slug


def write_tables(examinations: Sequence[Examination], folder: Path) -> None:
    """Each table as ``results/<model>-<analysis>.npz`` and ``.csv``."""
    (folder / "results").mkdir()
    for examination in examinations:
        for result in examination.tables():
            name = file_name(examination.name, result)
            result.save(folder / "results" / f"{name}.npz")
            result.save_csv(folder / "results" / f"{name}.csv")


def write_figures(examinations: Sequence[Examination], folder: Path) -> None:
    """Each analysis as ``figures/<analysis>.png``, ``.svg`` and ``.pdf``, all models in one."""
    (folder / "figures").mkdir()
    for drawing in drawings(examinations):
        save_figure(drawing.figure, folder / "figures" / drawing.stem)


def write_report(examinations: Sequence[Examination], folder: Path) -> None:
    """Everything on one page, ``report.html``, beside the tables that it links to."""
    command = examinations[0].costs.provenance.command
    render(examinations, folder / "report.html", command=command)


def write_comparisons(comparisons: Mapping[tuple[str, str], Similarity], folder: Path) -> None:
    """Each comparison of two models, ``<model>-and-<other>-cka``, beside what each has."""
    for part in ("results", "figures"):
        (folder / part).mkdir(exist_ok=True)
    for models, result in comparisons.items():
        stem = f"{slug(models[0])}-and-{slug(models[1])}-cka"
        result.save(folder / "results" / f"{stem}.npz")
        result.save_csv(folder / "results" / f"{stem}.csv")
        save_figure(panel([result], names=[""], models=models), folder / "figures" / stem)


@contextmanager
def output_folder(path: Path) -> Iterator[Path]:
    """A folder to write into, whose files go to `path` together, if the body succeeds.

    After a failure or Ctrl-C everything under `path` is as it was.

    Raises:
        InputError: at once, if nothing can be written to `path`.
    """
    created = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        try:
            path.mkdir(parents=True, exist_ok=True)
            scratch = TemporaryDirectory(prefix=".visprism-", dir=path)
        except OSError as error:
            raise InputError(
                f"cannot write to the folder {path} ({error.strerror}); name another by --out"
            ) from error
        with scratch as name:
            yield Path(name)
            _move(Path(name), path)
    finally:
        for folder in created:
            with suppress(OSError):  # not empty, as after success
                folder.rmdir()


def _move(scratch: Path, path: Path) -> None:
    for file in sorted(p for p in scratch.rglob("*") if p.is_file()):
        target = path / file.relative_to(scratch)
        target.parent.mkdir(parents=True, exist_ok=True)
        file.replace(target)
