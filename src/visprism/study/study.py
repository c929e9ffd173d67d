"""Studies: what `examine` returns."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from visprism.study.exports import markdown_of
from visprism.study.files import write_files, write_report
from visprism.study.merge import merged
from visprism.study.record import StudyRecord
from visprism.study.store import load_study, save_study


@dataclass(frozen=True, repr=False)
class Study(StudyRecord):
    """What `examine` returns: results, failures, and the table that compares the models.

    ``study["model"]["analysis"]`` is a result; ``study["analysis"]`` maps models to results.
    Further results of an analysis have the name of their type: ``study["reliability"]``.
    Iteration goes over the models.
    """

    __hash__ = StudyRecord.__hash__

    @classmethod
    def of(cls, record: StudyRecord) -> "Study":
        """The study with what a record holds."""
        return cls(**vars(record))

    def save(self, folder: Path | str) -> None:
        """Write every result and the index, so that `load` reads them."""
        save_study(self, Path(folder))

    @classmethod
    def load(cls, folder: Path | str) -> "Study":
        """Read what `save`, or `examine` with `out`, wrote."""
        return cls.of(load_study(Path(folder)))

    @classmethod
    def merge(cls, studies: "Iterable[Study]") -> "Study":
        """One study of the models of several, with all paired differences.

        The studies may come from different machines. They are of the same images in the same
        order, by one seed and one version; each analysis has the same options, number of
        images and precision in all. Numbers of the table equal the numbers of one study
        of all models. Analyses that measure two models together, such as CKA between two, are
        listed as not measured: `examine` with the folder of the merged study adds them.

        Args:
            studies: the models are in their order.
        """
        return cls.of(merged(list(studies)))

    def to_html(self, path: Path | str) -> None:
        """Write the report, one HTML page that needs nothing else, whole or not at all."""
        write_report(self, Path(path))

    def write_files(self, folder: Path | str, formats: Iterable[str] = ("svg",)) -> None:
        """Write the report, its figures, ``study.md`` and ``results.json`` into a folder.

        Args:
            folder: by convention the folder of `save`, so that the report links to the tables.
            formats: of the figures: "png", "svg", "pdf".
        """
        write_files(self, Path(folder), tuple(formats))

    def to_markdown(self) -> str:
        """The table, the findings and the failures as Markdown."""
        return markdown_of(self)
