"""``visprism evolve``, ``merge`` and ``demo``: of trainings, of other studies, of examples."""

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
_DEMO_IMAGES = 256


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

    def run(self) -> int:
        """Merge the studies, write the files of the one and print it; the exit code."""
        from visprism.study.store import INDEX, check_out
        from visprism.study.study import Study

        if any(self.out.resolve() == Path(folder).resolve() for folder in self.studies):
            raise InputError(f"out must be another folder than the studies', got {self.out}")
        check_out(self.out)
        study = Study.merge([Study.load(Path(folder)) for folder in self.studies])
        held = Study.load(self.out).models if (self.out / INDEX).is_file() else ()
        if not {*held} <= {*study.models}:
            raise InputError(
                f"out must be a folder without a study of other models, got {self.out} with "
                f"{', '.join(held)}. Choose another folder."
            )
        study.save(self.out)
        study.write_files(self.out, self.formats)
        return self.printed(study)


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
            limit=_DEMO_IMAGES,
            batch_size=32,
            out=self.out,
            run=replace(run, deadline=deadline),
            listener=listener,
        )
