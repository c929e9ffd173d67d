"""Loggers: the curves of a run in TensorBoard, Weights & Biases, Trackio, MLflow or CSV."""

import csv
import importlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from visprism.core.errors import InputError
from visprism.core.files import write_text


@runtime_checkable
class Logger(Protocol):
    """Receives named numbers and their step."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Store or show the values."""
        ...

    def close(self) -> None:
        """End the run."""
        ...


class CSVLogger:
    """Numbers in ``log.csv``, a row for each; a resumed run continues it."""

    def __init__(self, folder: Path) -> None:
        self._path, self._continued = folder / "log.csv", False

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Add a row for each number."""
        if not self._continued:  # without what came after the checkpoint of the resumption
            before: list[str] = []
            if self._path.is_file():
                rows = self._path.read_text("utf-8").splitlines()[1:]
                before = [row for row in rows if int(row.partition(",")[0]) < step]
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_text(self._path, "".join(f"{row}\n" for row in ("step,name,value", *before)))
            self._continued = True
        with self._path.open("a", encoding="utf-8", newline="") as file:
            rows = ((step, name, value) for name, value in values.items())
            csv.writer(file, lineterminator="\n").writerows(rows)

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

    def close(self) -> None:
        """Write the remaining points."""
        if self._writer is not None:
            self._writer.close()


class ServiceLogger:
    """Curves in wandb, Trackio or MLflow.

    The run is created there with its first values, so that a run that is refused creates none.
    A file in the folder stores its identifier, by which a resumed run continues it. In MLflow
    an active run is used instead, and left active.
    """

    def __init__(self, package: str, folder: Path, settings: Mapping[str, Any]) -> None:
        self._package, self._folder, self._settings = package, folder, dict(settings)
        self._service: Any = None  # the module
        self._run: Any = None  # of wandb or Trackio; of MLflow the client
        self._run_id = ""  # of MLflow
        self._own = True  # whether the run is not one that was active

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Add a point to each curve; the step is their axis."""
        if self._run is None:
            self._service = importlib.import_module(self._package)
            self._run = self._start_mlflow() if self._package == "mlflow" else self._start()
        points = {name: value for name, value in values.items() if name != "step"}
        if self._run_id:
            self._service.log_metrics(points, step=step, run_id=self._run_id)
        else:
            self._run.log(points, step=step)

    def close(self) -> None:
        """Send the remaining points, and end the run if it is no other's."""
        if self._run_id and self._own:
            self._run.set_terminated(self._run_id)
        elif self._run is not None and not self._run_id:
            self._run.finish()

    @property
    def _note(self) -> Path:
        return self._folder / f"{self._package}.txt"

    def _stored(self) -> str:
        """The identifier of the run that is resumed; empty for a new one."""
        return self._note.read_text("utf-8").strip() if self._note.exists() else ""

    def _store(self, identifier: str) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        write_text(self._note, f"{identifier}\n")

    def _start(self) -> Any:
        handle = {"wandb": "id", "trackio": "name"}[self._package]
        options: dict[str, Any] = {"name": self._folder.name}
        if stored := self._stored():
            options |= {handle: stored, "resume": "allow"}
        run = self._service.init(project="visprism", config=self._settings, **options)
        self._store(getattr(run, handle))
        return run

    def _start_mlflow(self) -> Any:
        client, active = self._service.MlflowClient(), self._service.active_run()
        self._own = active is None
        self._run_id = self._stored() if active is None else active.info.run_id
        if not self._run_id:
            known = client.get_experiment_by_name("visprism")
            experiment = known.experiment_id if known else client.create_experiment("visprism")
            created = client.create_run(experiment, run_name=self._folder.name)
            self._run_id = created.info.run_id
            for name, value in self._settings.items():
                client.log_param(self._run_id, name, value)
            self._store(self._run_id)
        return client


LOGGERS: dict[str, Callable[[Path, Mapping[str, Any]], Logger]] = {
    "csv": lambda folder, _: CSVLogger(folder),
    "mlflow": partial(ServiceLogger, "mlflow"),
    "tensorboard": lambda folder, _: TensorBoardLogger(folder),
    "trackio": partial(ServiceLogger, "trackio"),
    "wandb": partial(ServiceLogger, "wandb"),
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
