"""Following a run: what it tells meanwhile, to TensorBoard, Weights & Biases or Trackio."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from visprism.core.errors import InputError
from visprism.core.files import atomic_write


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
        # At once, as states are: of a killed run no point before its state would be missing.
        self._writer.flush()

    def close(self) -> None:
        """Write what is left."""
        if self._writer is not None:
            self._writer.close()


class Service:
    """Curves on a service with the interface of wandb, as Trackio has it too.

    The run begins there with its first values, so that what is refused leaves none. A file in
    the folder keeps by what the service finds it again: one that is resumed goes on there.
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
            self._run = self._begun()
        # The step is their axis already.
        self._run.log({k: v for k, v in values.items() if k != "step"}, step=step)

    def close(self) -> None:
        """Send what is left."""
        if self._run is not None:
            self._run.finish()

    def _begun(self) -> Any:  # noqa: ANN401 (of a package that need not be there)
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


LOGS: dict[str, Callable[[Path, Mapping[str, Any]], Logger]] = {
    "tensorboard": lambda folder, _: TensorBoard(folder),
    "wandb": lambda folder, settings: Service("wandb", "id", folder, settings),
    "trackio": lambda folder, settings: Service("trackio", "name", folder, settings),
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
