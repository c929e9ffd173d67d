"""Loggers: the curves of a run in TensorBoard, Weights & Biases, Trackio, MLflow or CSV."""

import csv
import importlib
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, runtime_checkable

import numpy as np

from visprism.core.errors import InputError
from visprism.core.files import atomic_write, write_text


@runtime_checkable
class Logger(Protocol):
    """Receives named numbers and their step.

    One that also has ``log_arrays(step, draw)`` receives what ``draw()`` makes, see `Arrays`.
    """

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Store or show the values."""
        ...

    def close(self) -> None:
        """End the run."""
        ...


Arrays = Mapping[str, np.ndarray]  # values of a histogram, or a picture (height, width, 3)
Draw = Callable[[], Arrays]


def log_arrays(run: Any, step: int, draw: Draw, *, axis: str = "", run_id: str = "") -> None:
    """Give histograms and pictures to what a run is logged to, as far as it takes them.

    Args:
        run: a ``SummaryWriter``; MLflow, which takes no histograms, as a module or a client;
            wandb or Trackio, as a module or a run. Anything else is given nothing.
        step: of the training.
        draw: makes them; called only if they are taken.
        axis: name by which wandb and Trackio get the step, where it is not their own.
        run_id: of a client of MLflow.
    """
    module = run.__name__ if isinstance(run, ModuleType) else type(run).__module__
    library = module.partition(".")[0]
    if hasattr(run, "add_histogram"):
        for name, array in draw().items():
            if array.ndim == 3:
                run.add_image(name, array, step, dataformats="HWC")
            else:
                run.add_histogram(name, array, step)
        run.flush()
    elif library == "mlflow":
        of_run = {"run_id": run_id} if run_id else {}
        for name, array in draw().items():
            if array.ndim == 3:
                run.log_image(image=array, key=name, step=step, **of_run)
    elif library in ("wandb", "trackio"):
        service = importlib.import_module(library)
        kinds = {1: service.Histogram, 3: service.Image}
        shown = {name: kinds[array.ndim](array) for name, array in draw().items()}
        run.log({**shown, axis: step}) if axis else run.log(shown, step=step)


class CSVLogger:
    """Numbers in ``log.csv``, a row for each; a resumed run continues it."""

    def __init__(self, folder: Path) -> None:
        self._path, self._continued = folder / "log.csv", False

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Add a row for each number."""
        if not self._continued:  # without what came after the checkpoint of the resumption
            earlier: list[list[str]] = []
            if self._path.is_file():
                with self._path.open(encoding="utf-8", newline="") as file:
                    earlier = [row for row in csv.reader(file) if row[0] < "a"]
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with (
                atomic_write(self._path) as scratch,
                scratch.open("w", encoding="utf-8", newline="") as file,
            ):
                before = [row for row in earlier if int(row[0]) < step]
                csv.writer(file).writerows([("step", "name", "value"), *before])
            self._continued = True
        with self._path.open("a", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows((step, name, value) for name, value in values.items())

    def close(self) -> None:
        """Every row is written."""


class TensorBoardLogger:
    """Curves for ``tensorboard --logdir FOLDER``; a resumed run continues them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "tensorboard"
        self._writer: Any = None

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Add a point to each curve."""
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            # Points after the checkpoint that the run was resumed from are removed.
            self._writer = SummaryWriter(str(self.folder), purge_step=step)
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        # At once, so that a killed run lacks no point before its checkpoint.
        self._writer.flush()

    def log_arrays(self, step: int, draw: Draw) -> None:
        """Add histograms and pictures, after the numbers of the step."""
        log_arrays(self._writer, step, draw)

    def close(self) -> None:
        """Write the remaining points."""
        if self._writer is not None:
            self._writer.close()


class WandbLogger:
    """Curves on a service with the interface of wandb, which Trackio has too.

    The run is created there with its first values, so that a run that is refused creates none.
    A file in the folder stores its identifier, by which a resumed run continues it.
    """

    def __init__(
        self, package: str, handle: str, folder: Path, settings: Mapping[str, Any]
    ) -> None:
        self._package, self._handle, self._folder = package, handle, folder
        self._settings = dict(settings)
        self._run: Any = None

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Add a point to each curve."""
        if self._run is None:
            self._run = self._start_run()
        # The step is the axis of the curves.
        self._run.log({k: v for k, v in values.items() if k != "step"}, step=step)

    def log_arrays(self, step: int, draw: Draw) -> None:
        """Add histograms and pictures, after the numbers of the step."""
        log_arrays(self._run, step, draw)

    def close(self) -> None:
        """Send the remaining points."""
        if self._run is not None:
            self._run.finish()

    def _start_run(self) -> Any:
        options: dict[str, Any] = {"name": self._folder.name}
        note = self._folder / f"{self._package}.txt"
        if note.exists():
            options |= {self._handle: note.read_text("utf-8").strip(), "resume": "allow"}
        service = importlib.import_module(self._package)
        run = service.init(project="visprism", config=self._settings, **options)
        self._folder.mkdir(parents=True, exist_ok=True)
        write_text(note, f"{getattr(run, self._handle)}\n")
        return run


class MLflowLogger:
    """Curves in MLflow: of the active run, or else of a run of the experiment visprism.

    A file in the folder stores its identifier, by which a resumed run continues it.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        self._folder, self._settings = folder, dict(settings)
        self._client: Any = None
        self._run = ""
        self._own = False  # whether the run is not one that was active

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Add a point to each curve."""
        if self._client is None:
            self._start_run()
        points = {k: v for k, v in values.items() if k != "step"}
        importlib.import_module("mlflow").log_metrics(points, step=step, run_id=self._run)

    def log_arrays(self, step: int, draw: Draw) -> None:
        """Add pictures, after the numbers of the step."""
        log_arrays(self._client, step, draw, run_id=self._run)

    def close(self) -> None:
        """End the run, if it is no other's."""
        if self._own:
            self._client.set_terminated(self._run)

    def _start_run(self) -> None:
        mlflow: Any = importlib.import_module("mlflow")
        client, active = mlflow.MlflowClient(), mlflow.active_run()
        note = self._folder / "mlflow.txt"
        if active is not None:
            self._run = active.info.run_id
        elif note.exists():
            self._run = note.read_text("utf-8").strip()
        else:
            known = client.get_experiment_by_name("visprism")
            experiment = known.experiment_id if known else client.create_experiment("visprism")
            created = client.create_run(experiment, run_name=self._folder.name)
            self._run = created.info.run_id
            for name, value in self._settings.items():
                client.log_param(self._run, name, value)
            self._folder.mkdir(parents=True, exist_ok=True)
            write_text(note, f"{self._run}\n")
        self._client, self._own = client, active is None


LOGGERS: dict[str, Callable[[Path, Mapping[str, Any]], Logger]] = {
    "csv": lambda folder, _: CSVLogger(folder),
    "mlflow": MLflowLogger,
    "tensorboard": lambda folder, _: TensorBoardLogger(folder),
    "trackio": lambda folder, settings: WandbLogger("trackio", "name", folder, settings),
    "wandb": lambda folder, settings: WandbLogger("wandb", "id", folder, settings),
}


def make_loggers(
    names: Sequence[str] | None, folder: Path, settings: Mapping[str, Any]
) -> list[Logger]:
    """Loggers by name, of `LOGGERS`; None: tensorboard if it is installed."""
    if names is None:
        names = ["tensorboard"] if find_spec("tensorboard") else []
    for name in names:
        if name not in LOGGERS:
            raise InputError(f"loggers must be of {', '.join(LOGGERS)}, got {name!r}")
        if find_spec(name) is None:
            raise InputError(
                f"the logger {name} needs the package {name}, which is not installed. Install "
                f"it with pip install {name}, or use csv."
            )
    return [LOGGERS[name](folder, settings) for name in names]
