"""The folder of a run: training checkpoints, weights, snapshots, history and recipe."""

import logging
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor, nn

from visprism.core.errors import InputError
from visprism.core.files import atomic_write, lock_folder, not_written, write_text
from visprism.core.processes import gather, rank
from visprism.core.provenance import Provenance, fingerprint
from visprism.images.training_batches import Feed
from visprism.training.engine import Engine
from visprism.training.epoch_metrics import EpochMetrics
from visprism.training.optimizers import warmup_steps
from visprism.training.recipe import as_yaml, recipe_fields

_NO_CHECKPOINT = "There is no training checkpoint yet"


class Checkpointer:
    """Writes and reads the folder of a run; with several processes the first one writes."""

    def __init__(
        self,
        folder: Path | None,
        engine: Engine,
        metrics: EpochMetrics,
        train: Feed,
        *,
        save: Callable[..., object],
        checkpoint_minutes: float,
        names: Mapping[str, str],
        provenance: Provenance,
    ) -> None:
        self.folder, self.engine, self.metrics, self.train = folder, engine, metrics, train
        self.save, self.checkpoint_minutes = save, checkpoint_minutes
        self.provenance = provenance
        self.identity = run_identity(engine, train, names)
        self._last_write = time.monotonic()
        self._lock: int | None = None  # descriptor of the folder, while this run writes to it

    @contextmanager
    def named_in_errors(self) -> Iterator[None]:
        """Inside, an error of the user names the training checkpoint that is left."""
        try:
            yield
        except InputError as error:
            if self.folder is None:
                raise
            path = valid_checkpoint(self.folder)
            text = str(error).rstrip(".")
            named = f"The last training checkpoint is {path}" if path else _NO_CHECKPOINT
            raise InputError(f"{text}. {named}.") from error

    def begin(self, *, resume: bool) -> int:
        """The first step: 0, or the step of the training checkpoint in the folder."""
        if self.folder is not None and rank() == 0:
            self._lock = self._locked(self.folder)
        checkpoint = None if self.folder is None else read_checkpoint(self.folder)
        steps = gather(checkpoint["step"] if checkpoint else 0)
        other = next((r for r, step in enumerate(steps) if step != steps[0]), None)
        if other is not None:
            raise InputError(
                f"all processes must see one folder, got step {steps[0]} in process 0 and step "
                f"{steps[other]} in process {other}"
            )
        if self.folder is None:
            return 0
        if checkpoint is not None:
            if not resume:
                raise InputError(
                    f"{self.folder} holds a run after {steps[0]} steps. Set resume=True to "
                    "resume it, or name another folder."
                )
            stored = dict(checkpoint["identity"])
            recipe, now = stored["recipe"], self.identity["recipe"]
            if now["epochs"] > recipe.get("epochs", 0):
                _log.warning(
                    "the run is extended from %s to %s epochs: from here on, the learning rate "
                    "is the schedule's of %s epochs",
                    recipe.get("epochs"), now["epochs"], now["epochs"],
                )  # fmt: skip
            may_differ = {
                name: now[name] for name in ("epochs", "patience", "warmup", "milestones")
            }
            if now["epochs"] >= recipe.get("epochs", 0):
                stored["recipe"] = recipe | may_differ
            check_identity(stored, self.identity, self.folder)
            self.engine.load(checkpoint["engine"])
            self.metrics.load(checkpoint["metrics"])
        self._write_recipe()
        if checkpoint is None:
            self._write_snapshot(0)
        return steps[0]

    def _locked(self, folder: Path) -> int | None:
        """Lock the folder against other runs; the descriptor of the lock."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            return lock_folder(folder, "folder")
        except OSError as error:
            raise not_written(folder, error) from error

    def close(self) -> None:
        """Let other runs write to the folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def after_epoch(self, step: int, accuracy: float) -> None:
        """Write training checkpoint and history, and weights and snapshots that are due."""
        epoch = step // self.train.steps
        every = self.engine.recipe.snapshot_every
        due = every and epoch % every == 0
        if accuracy > self.metrics.best:
            self.metrics.best = accuracy
            self._write_weights("best.safetensors", self.engine.model)
        if due or (every and step == self._warmup_end):
            self._write_snapshot(step)
        self._write_checkpoint(step)
        self._write_history()

    def after_step(self, step: int, check: Callable[[], None]) -> None:
        """Write a training checkpoint if it is due, once `check` has accepted the weights."""
        if self.engine.recipe.snapshot_every and step == self._warmup_end:
            self._write_snapshot(step)
        due = time.monotonic() - self._last_write > 60 * self.checkpoint_minutes
        if gather(due)[0] if self.engine.sharded else due:  # clocks of processes differ
            check()
            self._write_checkpoint(step)

    def end(self) -> None:
        """Write the weights after the last step."""
        self._write_history()  # a run that was killed after its last checkpoint lacks it
        self._write_weights("model.safetensors", self.engine.model)
        if self.engine.average is not None:
            self._write_weights("ema.safetensors", self.engine.average.module)

    @property
    def _warmup_end(self) -> int:
        return warmup_steps(self.train.steps, self.engine.recipe)

    def _write_checkpoint(self, step: int) -> None:
        self._last_write = time.monotonic()
        if self.folder is None or (rank() > 0 and not self.engine.sharded):
            return
        content = {"engine": self.engine.state(), "metrics": self.metrics.state()}
        if rank() == 0:
            write_checkpoint(self.folder, {"step": step, "identity": self.identity, **content})

    def _write_history(self) -> None:
        if self.folder is not None and rank() == 0:
            history = self.metrics.history(self.provenance)
            history.save_csv(self.folder / "history.csv")
            history.save(self.folder / "history.npz")

    def _write_recipe(self) -> None:
        if self.folder is not None and rank() == 0:
            write_text(self.folder / "recipe.yaml", as_yaml(self.engine.recipe))

    def _write_snapshot(self, step: int) -> None:
        if self.engine.recipe.snapshot_every and self.folder is not None:
            (self.folder / "snapshots").mkdir(exist_ok=True)
            self._write_weights(f"snapshots/step-{step:08d}.safetensors", self.engine.model)

    def _write_weights(self, name: str, model: nn.Module) -> None:
        if self.folder is None:
            return
        full = self.engine.full(model)
        if rank() == 0:
            metrics = self.metrics.latest()
            self.save(full, self.folder / name, recipe=self.engine.recipe, metrics=metrics)


def run_identity(engine: Engine, train: Feed, names: Mapping[str, str]) -> dict[str, Any]:
    """What must be the same for a run to be resumed: recipe, model, teacher and data.

    Data have digests of all classes and of some images; a teacher has a digest of its weights.
    """
    tensors: dict[str, Tensor] = engine.model.state_dict()
    teacher = engine.teacher
    weights = {} if teacher is None else {"weights": fingerprint(teacher.state_dict().values())}
    data = {"images": train.images, "number of classes": train.num_classes}
    return {
        "run": dict(names),
        "recipe": recipe_fields(engine.recipe),
        "data": data | train.fingerprints,
        "teacher": weights,
        "model": {name: list(tensor.shape) for name, tensor in tensors.items()},
    }


def check_identity(stored: Mapping[str, Any], current: Mapping[str, Any], folder: Path) -> None:
    """Require that the run in the folder is the present one."""
    differences = [
        f"{part} {name} {before.get(name, 'none')} there and {values.get(name, 'none')} now"
        for part, values in current.items()
        for before in [stored.get(part, {})]
        for name in dict.fromkeys((*before, *values))
        if before.get(name) != values.get(name)
    ]
    if differences:
        more = f" and {len(differences) - 3} more" if len(differences) > 3 else ""
        raise InputError(
            f"{folder} holds another run: {'; '.join(differences[:3])}{more}. Resume it with "
            "the same settings, or name another folder."
        )


LAST, PREVIOUS = "last.ckpt", "previous.ckpt"

# A file begins with a mark and a digest of the rest: torch does not notice damaged values.
_MARK = b"visprism state 1"
_DIGEST = 32  # bytes

_log = logging.getLogger(__name__)


def write_checkpoint(folder: Path, checkpoint: Mapping[str, Any]) -> None:
    """Write ``last.ckpt``, whole or not at all; the file before it becomes ``previous.ckpt``.

    If that file is damaged, ``previous.ckpt`` stays until the new one is written.
    """
    path = folder / LAST
    try:
        with atomic_write(path) as scratch:
            with scratch.open("w+b") as file:
                file.write(_MARK + bytes(_DIGEST))
                torch.save(dict(checkpoint), file)
                digest = _digest(file)
                file.seek(len(_MARK))
                file.write(digest)
                file.flush()
                os.fsync(file.fileno())  # a crash of the machine could leave an empty file
            if path.exists() and _fault(path) is None:
                path.replace(folder / PREVIOUS)
    except (OSError, RuntimeError) as error:  # torch hides what the file raises
        reason = error.strerror if isinstance(error, OSError) else "the disk may be full"
        raise InputError(
            f"the training checkpoint of step {checkpoint['step']} could not be written to "
            f"{folder} ({reason}). Free some space or remove the cause, and resume."
        ) from error


def read_checkpoint(folder: Path) -> dict[str, Any] | None:
    """The last training checkpoint, or the one before if it is damaged; None for a new run."""
    paths = [folder / name for name in (LAST, PREVIOUS) if (folder / name).exists()]
    for path in paths:
        fault = _fault(path)
        if fault is None:
            with path.open("rb") as file, torch.serialization.safe_globals([defaultdict]):
                file.seek(len(_MARK) + _DIGEST)
                return torch.load(file, map_location="cpu", weights_only=True)
        more = "" if path == paths[-1] else f"; resuming from {paths[-1].name}"
        _log.warning("%s %s and was not used%s", path, fault, more)
    if paths:
        raise InputError(
            f"no training checkpoint in {folder} is valid "
            f"({', '.join(p.name for p in paths)}). Remove them to start again, or name "
            "another folder."
        )
    return None


def valid_checkpoint(folder: Path) -> Path | None:
    """The file that `read_checkpoint` would read, or None."""
    paths = (folder / LAST, folder / PREVIOUS)
    return next((path for path in paths if path.exists() and _fault(path) is None), None)


def _fault(path: Path) -> str | None:
    """Why a training checkpoint is not used; None for a valid one."""
    try:
        with path.open("rb") as file:
            if file.read(len(_MARK)) != _MARK:
                return "is not a training checkpoint of visprism"
            valid = file.read(_DIGEST) == _digest(file)
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    return None if valid else "is damaged (its checksum does not match)"


def _digest(file: IO[bytes]) -> bytes:
    """A digest of all that follows the head of a file."""
    file.seek(len(_MARK) + _DIGEST)
    return file_digest(file, lambda: blake2b(digest_size=_DIGEST)).digest()  # pyrefly: ignore
