"""Following a run: what it tells meanwhile, to TensorBoard, Weights & Biases or Trackio."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from visprism.errors import InputError


@runtime_checkable
class Logger(Protocol):
    """Is told numbers by name, and the step that they belong to."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Keep or show the values."""
        ...

    def close(self) -> None:
        """The run has ended."""
        ...


class TensorBoard:
    """Curves for ``tensorboard --logdir FOLDER``; a run that goes on takes its own place."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "tensorboard"
        self._writer: Any = None

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Add a point to each curve."""
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            # What was written after the state that a run went on from is left out.
            self._writer = SummaryWriter(str(self.folder), purge_step=step)
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Write what is left."""
        if self._writer is not None:
            self._writer.close()


class Service:
    """Curves on a service with the interface of wandb, as Trackio has it too."""

    def __init__(self, package: str, folder: Path, settings: Mapping[str, Any]) -> None:
        self._service = importlib.import_module(package)
        self._run = self._service.init(
            project="visprism", name=folder.name, config=dict(settings)
        )

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Add a point to each curve."""
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        """Send what is left."""
        self._run.finish()


LOGS: dict[str, Callable[[Path, Mapping[str, Any]], Logger]] = {
    "tensorboard": lambda folder, _: TensorBoard(folder),
    "wandb": lambda folder, settings: Service("wandb", folder, settings),
    "trackio": lambda folder, settings: Service("trackio", folder, settings),
}


def make_loggers(
    names: Sequence[str] | None, folder: Path, settings: Mapping[str, Any]
) -> list[Logger]:
    """Loggers by name: of tensorboard, wandb and trackio; None: the first, where installed.

    Raises:
        InputError: if there is no such logger, or its package is not installed.
    """
    if names is None:
        names = ["tensorboard"] if find_spec("tensorboard") else []
    for name in names:
        if name not in LOGS:
            raise InputError(f"no log {name!r}; there is {', '.join(LOGS)}")
        if find_spec(name) is None:
            raise InputError(
                f"{name} is not installed; `pip install {name}` installs it, and without --log "
                f"{name} the run is followed in history.csv alone"
            )
    return [LOGS[name](folder, settings) for name in names]
