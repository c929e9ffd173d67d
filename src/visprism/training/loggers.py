"""Loggers: the curves of a run in TensorBoard, Trackio or Weights & Biases."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from visprism.core.errors import InputError
from visprism.core.files import atomic_write


@runtime_checkable
class Logger(Protocol):
    """Receives named numbers and their step."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Store or show the values."""
        ...

    def close(self) -> None:
        """End the run."""
        ...


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

    def close(self) -> None:
        """Send the remaining points."""
        if self._run is not None:
            self._run.finish()

    def _start_run(self) -> Any:
        options: dict[str, Any] = {"name": self._folder.name}
        note = self._folder / f"{self._package}.txt"
        if note.exists():
            options |= {self._handle: note.read_text().strip(), "resume": "allow"}
        service = importlib.import_module(self._package)
        run = service.init(project="visprism", config=self._settings, **options)
        self._folder.mkdir(parents=True, exist_ok=True)
        with atomic_write(note) as scratch:
            scratch.write_text(f"{getattr(run, self._handle)}\n", encoding="utf-8")
        return run


LOGGERS: dict[str, Callable[[Path, Mapping[str, Any]], Logger]] = {
    "tensorboard": lambda folder, _: TensorBoardLogger(folder),
    "trackio": lambda folder, settings: WandbLogger("trackio", "name", folder, settings),
    "wandb": lambda folder, settings: WandbLogger("wandb", "id", folder, settings),
}


def make_loggers(
    names: Sequence[str] | None, folder: Path, settings: Mapping[str, Any]
) -> list[Logger]:
    """Loggers by name: tensorboard, trackio, wandb; None: tensorboard if it is installed."""
    if names is None:
        names = ["tensorboard"] if find_spec("tensorboard") else []
    for name in names:
        if name not in LOGGERS:
            raise InputError(f"loggers must be of {', '.join(LOGGERS)}, got {name!r}")
        if find_spec(name) is None:
            raise InputError(
                f"the logger {name} needs the package {name}, which is not installed. Install "
                f"it with pip install {name}, or use history.csv."
            )
    return [LOGGERS[name](folder, settings) for name in names]
