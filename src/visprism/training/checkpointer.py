"""Keeping: what a run leaves in its folder, and when."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol, runtime_checkable

from torch import nn

from visprism.core.errors import InputError
from visprism.core.files import atomic_write
from visprism.core.processes import gather, rank
from visprism.data import Feed
from visprism.training.engine import Engine
from visprism.training.epoch_metrics import EpochMetrics
from visprism.training.recipe import Recipe
from visprism.training.resuming import (
    check_same,
    cleared,
    good_state,
    identity,
    read_state,
    write_state,
)
from visprism.training.schedules import warm_steps
from visprism.training.settings import as_yaml


@runtime_checkable
class Save(Protocol):
    """Writes the weights of a model to a file, with how they came about."""

    def __call__(
        self, model: nn.Module, path: Path, *, recipe: Recipe, metrics: Mapping[str, float]
    ) -> None:
        """Write them, whole or not at all."""
        ...


class Checkpointer:
    """Writes states, snapshots and the history; of several processes the first does."""

    def __init__(
        self,
        folder: Path | None,
        engine: Engine,
        ledger: EpochMetrics,
        train: Feed,
        *,
        save: Save,
        minutes: float,
        named: Mapping[str, str],
    ) -> None:
        self.folder, self.engine, self.ledger, self.train = folder, engine, ledger, train
        self.save, self.minutes = save, minutes
        self.identity = identity(engine, train, named)
        self._since = time.monotonic()

    def where(self) -> str:
        """What an error says of the last good state; it looks whether there is one."""
        if self.folder is None:
            return ""
        found = good_state(self.folder)
        if found is None:
            return "; no state had been kept yet"
        return f"; the last good state is {found}"

    def begin(self, *, resume: bool) -> int:
        """The step to go on with: 0, or that of the state in the folder.

        Raises:
            InputError: if there is a run that is not to be resumed, or another one; if
                nothing can be written there, or processes see other folders.
        """
        first = self.folder is not None and rank() == 0
        fault, *_ = gather(cleared(self.folder) if first else None)  # pyrefly: ignore
        if fault:
            raise InputError(fault)
        state = None if self.folder is None else read_state(self.folder)
        steps = gather(state["step"] if state else 0)
        other = next((r for r, step in enumerate(steps) if step != steps[0]), None)
        if other is not None:
            raise InputError(
                f"process 0 would begin at step {steps[0]} and process {other} at step "
                f"{steps[other]}; give all of them one folder that they share"
            )
        if self.folder is None:
            return 0
        if state is None:
            self._recipe()
            self._snapshot(0)
            return 0
        if not resume:
            raise InputError(
                f"{self.folder} holds a run after {state['step']} steps; go on with it by "
                "--resume, or name another folder"
            )
        check_same(state, self.identity, self.folder)
        self.engine.load(state["engine"])
        self.ledger.load(state["ledger"])
        self._recipe()
        return state["step"]

    def after_epoch(self, step: int, accuracy: float) -> None:
        """Keep the state, the history, and what else is due."""
        epoch = step // self.train.steps
        every = self.engine.recipe.snapshots
        due = every and epoch % every == 0
        if accuracy > self.ledger.best:
            self.ledger.best = accuracy
            self._weights("best.safetensors", self.engine.model)
        if due or (every and step == self._warm):
            self._snapshot(step)
        self._state(step)
        self._history()

    def between(self, step: int, look: Callable[[], None]) -> None:
        """Keep the state if it is time, once losses and weights have been looked at."""
        if self.engine.recipe.snapshots and step == self._warm:
            self._snapshot(step)
        due = time.monotonic() - self._since > 60 * self.minutes
        if gather(due)[0] if self.engine.sharded else due:  # each has a clock of its own
            look()
            self._state(step)

    def end(self) -> None:
        """Leave the weights, ready to be loaded."""
        self._history()  # a run that was killed after its last state has not
        self._weights("model.safetensors", self.engine.model)
        if self.engine.average is not None:
            self._weights("ema.safetensors", self.engine.average.module)

    @property
    def _warm(self) -> int:
        return warm_steps(self.train.steps, self.engine.recipe)

    def _state(self, step: int) -> None:
        self._since = time.monotonic()
        if self.folder is None or (rank() > 0 and not self.engine.sharded):
            return
        content = {"engine": self.engine.state(), "ledger": self.ledger.state()}
        if rank() == 0:
            write_state(self.folder, {"step": step, "identity": self.identity, **content})

    def _history(self) -> None:
        if self.folder is not None and rank() == 0:
            history = self.ledger.history()
            history.save_csv(self.folder / "history.csv")
            history.save(self.folder / "history.npz")

    def _recipe(self) -> None:
        if self.folder is not None and rank() == 0:
            with atomic_write(self.folder / "recipe.yaml") as scratch:
                scratch.write_text(as_yaml(self.engine.recipe), encoding="utf-8")

    def _snapshot(self, step: int) -> None:
        if self.engine.recipe.snapshots and self.folder is not None:
            (self.folder / "snapshots").mkdir(exist_ok=True)
            self._weights(f"snapshots/step-{step:08d}.safetensors", self.engine.model)

    def _weights(self, name: str, model: nn.Module) -> None:
        if self.folder is None:
            return
        whole = self.engine.whole(model)
        if rank() == 0:
            known = self.ledger.latest()
            self.save(whole, self.folder / name, recipe=self.engine.recipe, metrics=known)
