"""``visprism evolve``, ``merge`` and ``demo``: of trainings, of other studies, of examples."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from visprism.cli.arguments import DATA, MODEL, REQUIRED, argument
from visprism.cli.study import Images, Output, StudyCommand, stated
from visprism.core.errors import InputError
from visprism.core.options import with_default
from visprism.core.request import Computation, DataOptions, Extent, Seeded, StudyImages

if TYPE_CHECKING:
    from visprism.core.run import Run
    from visprism.study.events import Listener
    from visprism.study.study import Study

SHIPPED = {"ResNet-20": "resnet20.shapes", "ViT-Pico": "vit_pico_patch4_32.shapes"}


@dataclass(frozen=True, kw_only=True)
class Evolve(Computation, StudyCommand, Images, Seeded):
    """Curves of any analysis over the checkpoints of one or more trainings."""

    group, epilog = "studies", f"{MODEL}\n{DATA}"
    runs: tuple[str, ...] = argument(
        REQUIRED,
        "folders: of `visprism train`, of checkpoints with the number of their step in their "
        "names, or of a monitor",
        "RUN",
        positional=True,
    )
    data: str = argument(
        "", "images, see below (default: none, to show what a monitor has measured)", "DATA"
    )
    model: str | None = argument(
        None, "model of the checkpoints, see below (default: the one that they name)", "MODEL"
    )
    analyses: tuple[str, ...] | None = argument(
        None, "names of analyses (default: a monitor's)", "A,B,..."
    )
    limit: int | None = with_default(DataOptions, "limit", 256)

    def run(self) -> int:
        """Measure each checkpoint, and show what changes when."""
        return self.perform(self._evolved)

    def _evolved(self, run: "Run", listener: "Listener") -> "Study":
        from visprism.study.evolve import evolve
        from visprism.study.monitor import WATCHED

        analyses = self.analyses or WATCHED
        return evolve(
            self.runs,
            self.data or None,
            model=self.model,
            analyses=analyses,
            **stated(self, StudyImages),
            effort=self.effort,
            out=self.out,
            fresh=self.fresh,
            run=replace(run, deadline=self.deadline(self.begin, len(self.runs), len(analyses))),
        )


@dataclass(frozen=True, kw_only=True)
class Merge(Output):
    """One study and report from studies of the same images by several jobs."""

    group, epilog = "studies", ""
    studies: tuple[str, ...] = argument(
        REQUIRED, "folders of studies", "STUDY", positional=True
    )
    expect: Path | None = argument(
        None,
        "file with the name of a model on each line: complete studies are merged, and the exit "
        "code is 1 if one of these models has none (default: every study must be complete)",
        "FILE",
    )

    def run(self) -> int:
        """Merge the studies, write the files of the one and print it; the exit code."""
        from visprism.study.store import INDEX, check_out
        from visprism.study.study import Study

        if any(self.out.resolve() == Path(folder).resolve() for folder in self.studies):
            raise InputError(f"out must be another folder than the studies', got {self.out}")
        check_out(self.out)
        expected = [] if self.expect is None else _expected(self.expect)
        study = Study.merge([*self._complete()] if expected else map(Study.load, self.studies))
        held = Study.load(self.out).models if (self.out / INDEX).is_file() else ()
        if not {*held} <= {*study.models}:
            raise InputError(
                f"out must be a folder without a study of other models, got {self.out} with "
                f"{', '.join(held)}. Choose another folder."
            )
        study.save(self.out)
        study.write_files(self.out, self.formats)
        code = self.printed(study)
        names = {name.partition(" (")[0] for name in study.models}
        missing = [f"{text} (line {n})" for n, text, label in expected if label not in names]
        if missing:
            listed = f"{self.expect} lists {len(expected)} models"
            text = f"visprism: {listed}, and there is no complete study of {', '.join(missing)}"
            print(text, file=sys.stderr)
        return 1 if missing else code

    def _complete(self) -> Iterator["Study"]:
        """The studies that are complete; a sentence for each other folder."""
        from visprism.study.study import Study

        for folder in self.studies:
            try:
                study = Study.load(folder)
                if "positions" in study.header:
                    yield study
                    continue
                reason = "the study was interrupted"
            except InputError as error:
                reason = str(error)
            print(f"{folder} is left out: {reason}", file=sys.stderr)


@dataclass(frozen=True, kw_only=True)
class Report(Output):
    """Write the page, figures and exports of a stored study, also an interrupted one."""

    group, epilog = "studies", ""
    out: Path = argument(REQUIRED, "folder of a study", "DIR", positional=True)

    def run(self) -> int:
        """Write the files of what is stored, and print it; the exit code."""
        from visprism.study.study import Study

        study = Study.load(self.out)
        if not study.entries:
            raise InputError(f"{self.out} must hold a result, and its study has none")
        study.write_files(self.out, self.formats)
        return self.printed(study)


def _expected(path: Path) -> list[tuple[int, str, str]]:
    """Line number, text and label of each model of a list."""
    from visprism.models.spec import ModelSpec

    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"expect must be a file of names of models, got {path}") from error
    empty = [str(n) for n, line in enumerate(lines, start=1) if not line.strip()]
    if empty or not lines:
        raise InputError(
            f"{path} must name a model on each line, and line {(empty or ['1'])[0]} is empty"
        )
    return [(n, line, ModelSpec.parse(line.strip()).label) for n, line in enumerate(lines, 1)]


@dataclass(frozen=True, kw_only=True)
class Demo(StudyCommand, Seeded):
    """Examine two small trained networks."""

    group, epilog = "studies", ""
    out: Path = argument(Path("demo"), "output folder", "DIR")

    def run(self) -> int:
        """Examine the networks that ship trained."""
        return self.perform(self._examined)

    def _examined(self, run: "Run", listener: "Listener") -> "Study":
        from visprism.kit.analysis import ANALYSES
        from visprism.study.examine import examine

        deadline = self.deadline(self.begin, len(SHIPPED), len(ANALYSES.chosen(None)))
        return examine(
            SHIPPED,
            "shapes",
            **stated(self, Extent),
            batch_size=32,
            out=self.out,
            run=replace(run, deadline=deadline),
            listener=listener,
        )
