"""Training runs of the study of claims: which ones there are, and their folders."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from visprism.claims.arms import ARMS, Arm, arm_of
from visprism.claims.scales import Scale
from visprism.core.run import Run
from visprism.results.training import History
from visprism.training import Job, Recipe, train
from visprism.training.recipe_files import read_recipe

_WEIGHTS, _HISTORY, _RECIPE = "model.safetensors", "history.npz", "recipe.yaml"


@dataclass(frozen=True)
class TrainingRun:
    """One network of the study: an arm, a seed, and the folder that its training writes."""

    arm: Arm
    seed: int
    scale: Scale
    data: str
    folder: Path

    @property
    def name(self) -> str:
        """Name of the folder."""
        return self.folder.name

    @property
    def recipe(self) -> Recipe:
        """How it is trained."""
        return self.arm.recipe(self.scale, self.seed)

    @property
    def job(self) -> Job:
        """What is trained, on which images."""
        return Job(
            model=self.scale.network(self.arm.network).spec,
            data=self.data,
            folder=self.folder,
            subset=self.subset,
            test_limit=self.scale.test_images,
            resume=True,
            logs=(),
        )

    @property
    def subset(self) -> float:
        """The fraction of the training images of the data that it is trained on."""
        return round(self.scale.subset * self.arm.fraction, 6)

    @property
    def train_data(self) -> str:
        """Its training images by name; the seed of the run selects them."""
        if self.subset == 1:
            return self.data
        return f"{self.data}{'&' if '?' in self.data else '?'}subset={self.subset:g}"

    @property
    def finished(self) -> bool:
        """Whether the folder holds the outcome of exactly this training."""
        files = [self.folder / name for name in (_WEIGHTS, _HISTORY, _RECIPE)]
        if not all(f.is_file() for f in files) or read_recipe(files[-1]) != self.recipe:
            return False
        return self.history().provenance.model == self.job.model

    def train(self, run: Run) -> History:
        """Train it, resume its training, or read the history of a finished one."""
        if not self.finished:
            train(self.job, self.recipe, run=run)
        return self.history()

    def history(self) -> History:
        """The learning curve of a finished run."""
        return History.load(self.folder / _HISTORY)

    def phases(self) -> dict[str, Path]:
        """The weights after the warm-up and at the end of training."""
        snapshots = sorted((self.folder / "snapshots").glob("*.safetensors"))
        return {WARMUP: snapshots[1], END: self.folder / _WEIGHTS}


WARMUP, END = "after the warm-up", "end of training"


def run_of(name: str, seed: int, scale: Scale, data: str, folder: Path) -> TrainingRun:
    """The run of the arm with this name; arms with the same training share their runs."""
    arm = arm_of(name)
    same = next(
        other for other in ARMS.values() if _training(other, scale) == _training(arm, scale)
    )
    words = same.name.replace(",", "").replace("%", "pct").split()
    return TrainingRun(
        same, seed, scale, data or scale.data, folder / "-".join([*words, f"seed{seed}"])
    )


def runs_of(
    arms: Iterable[str], scale: Scale, data: str, folder: Path, seeds: Sequence[int]
) -> list[TrainingRun]:
    """The different runs of the arms: every arm with the first seed, then with the next one."""
    runs = [run_of(name, seed, scale, data, folder) for seed in seeds for name in arms]
    return list({run.folder: run for run in runs}.values())


def _training(arm: Arm, scale: Scale) -> tuple | None:
    """What determines the training of an arm; None where the scale lacks its network."""
    if arm.network not in scale.networks:
        return None
    return scale.network(arm.network).spec, arm.recipe(scale, 0), arm.fraction
