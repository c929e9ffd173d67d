"""The experiment: train what claims compare, measure it, and keep the raw numbers."""

import json
import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from math import isfinite, log, nan
from pathlib import Path
from typing import Any

import numpy as np

import visprism as vp
from experiments.claims.files import read_json, write_text
from experiments.claims.hypotheses import (
    ACCURACY,
    FIT,
    NLL,
    WARM_UP,
    Hypothesis,
    Quantity,
    primary_of,
    secondary_of,
)
from experiments.claims.measure import equal_fit, fit_curve, key, measure, stored_values
from experiments.claims.networks import NETWORKS, Scale, TrainingRun, run_of, scale_of
from experiments.claims.verdicts import SeedEffects

RAW = "claims.json"
_DATA = "data.txt"  # in the folder of a scale: the data of all of its networks
_POLL = 2.0  # seconds between looks for the runs of other processes
_ROW_QUANTITIES = (ACCURACY, NLL)  # of each network of a row


@dataclass(frozen=True)
class MeasuredRun:
    """A trained network with its quantities: a row of the raw numbers."""

    name: str
    networks: tuple[str, ...]  # that it belongs to
    seed: int
    images: int  # of training
    epochs: int
    warm_up: int  # its last epoch
    minutes: float
    accuracy: tuple[float, float, float]  # with its 95% interval over test images
    curve: Mapping[str, Sequence[float | int | None]]  # epoch, training loss, test accuracy
    quantities: Mapping[str, float | None]  # by name and epoch: "test accuracy @20"

    def value(self, quantity: Quantity, epoch: int) -> float:
        """A quantity at an epoch; NaN where the network has none."""
        value = self.quantities.get(key(quantity, epoch))
        return nan if value is None else value


@dataclass(frozen=True)
class RawNumbers:
    """All numbers that verdicts follow from, and where they come from."""

    scale: str
    data: str
    runs: tuple[MeasuredRun, ...]
    origin: Mapping[str, Any]  # versions, machine, date, command
    again: tuple[MeasuredRun, ...] = ()  # trained again for snapshots that were not kept
    own_model: str = ""  # the user's, in place of the scale's

    @property
    def networks(self) -> Scale:
        """The scale, with the user's model if there is one."""
        return scale_of(self.scale, self.own_model)

    def of_network(self, name: str, *, at_equal_fit: bool = False) -> dict[int, MeasuredRun]:
        """The runs of a network by seed."""
        runs = (*self.runs, *self.again) if at_equal_fit else self.runs
        return {run.seed: run for run in runs if name in run.networks}

    def tested(self, h: Hypothesis, *, at_equal_fit: bool = False) -> SeedEffects:
        """The effects of a hypothesis by seed, of the seeds that every network has."""
        first = self.of_network(h.network, at_equal_fit=at_equal_fit)
        other = first
        if h.control:
            other = self.of_network(h.control, at_equal_fit=at_equal_fit)
        rows = []
        for seed in sorted(set(first) & set(other)):
            pair = (first[seed], other[seed])
            epochs = _epochs(h, *pair, at_equal_fit=at_equal_fit)
            if epochs is None:
                continue
            values = [
                [_value(h, q, r, e) for q in h.quantities]
                for r, e in zip(pair, epochs, strict=True)
            ]
            effects = [a - b * bool(h.control) for a, b in zip(*values, strict=True)]
            if all(isfinite(v) for v in effects):
                rows.append(effects)
        sign = 1 if h.direction == "higher" else -1
        columns = np.array(rows, dtype=float).reshape(-1, len(h.quantities)).T
        return SeedEffects(tuple(columns), (sign, -sign)[: len(columns)], h.margin)

    def fits(self, h: Hypothesis) -> list[str]:
        """Mean test accuracy and training NLL of each network at the end of training."""
        texts = []
        for name in h.networks:
            runs = self.of_network(name).values()
            accuracy, nll = ([r.value(q, r.epochs) for r in runs] for q in _ROW_QUANTITIES)
            if runs:
                title = self.networks.title(NETWORKS[name])
                texts.append(f"{title} {np.mean(accuracy):.1%}, {np.mean(nll):.2f} nats")
        return texts

    def save(self, path: Path) -> None:
        """Write them as JSON, whole or not at all."""
        content = asdict(self)
        for run in (*content["runs"], *content["again"]):
            run["quantities"] = {
                k: v if isfinite(v) else None for k, v in run["quantities"].items()
            }
        write_text(path, json.dumps(content, indent=1, allow_nan=False) + "\n")

    @classmethod
    def load(cls, path: Path) -> "RawNumbers":
        """Read what `save` wrote."""
        if path.is_dir():
            path = path / RAW
        return read_json(
            path, cls, "the numbers that `python -m experiments.claims run` writes"
        )


def _value(h: Hypothesis, quantity: Quantity, run: MeasuredRun, epoch: int) -> float:
    value = run.value(quantity, epoch)
    if not h.logarithm:
        return value
    return log(value) if value > 0 else nan


def _epochs(
    h: Hypothesis, first: MeasuredRun, other: MeasuredRun, *, at_equal_fit: bool
) -> tuple[int, int] | None:
    """The snapshots that are compared; None without snapshots of equal training NLL."""
    if at_equal_fit:
        curves = (fit_curve(first.quantities), fit_curve(other.quantities))
        return equal_fit(*curves, early=h.phase == WARM_UP)
    if h.phase == WARM_UP:
        return first.warm_up, other.warm_up
    return first.epochs, other.epochs


def run_claims(
    codes: Iterable[str] | None = None,
    *,
    out: Path | str,
    scale: str = "small",
    model: str = "",
    data: str = "",
    seeds: int | None = None,
    report: Callable[[str], None] | None = None,
    run: vp.Run | None = None,
) -> RawNumbers | None:
    """Train the networks that claims compare, measure them, and write the raw numbers.

    Primary hypotheses come first, in the order of `codes`, then secondary ones. Networks that
    were trained and quantities that were measured before are read, so that an interrupted
    experiment resumes and claims share their networks. After each seed the raw numbers of the
    whole folder are written again. Under ``torchrun`` each process has other seeds, and the
    first one writes and returns the numbers of all; the others return None.

    Args:
        codes: of claims, such as "C6", or of their rows, such as "C6a"; None for all that the
            scale can decide.
        out: folder of the experiment; networks are in ``out/SCALE``.
        scale: name of a scale.
        model: as `vp.load_model` takes it, in place of the scale's networks, for rows that
            measure networks of one architecture; "" for the scale's.
        data: training and test images by name; "" for the scale's data.
        seeds: trained networks of each; None for the number of the scale.
        report: receives a line for each network, if given.
        run: device and progress; seeds come from the experiment.
    """
    run = run or vp.Run()
    chosen = scale_of(scale, model)
    if seeds is not None and seeds < 1:
        raise vp.InputError(f"seeds must be positive, got {seeds}")
    primary = primary_of(codes, chosen)
    hypotheses = [*primary, *secondary_of(primary, chosen)]
    folder = Path(out) / chosen.folder
    _require_data(folder, data or chosen.data)
    first = chosen.seeds[0]
    numbers = chosen.seeds if seeds is None else range(first, first + seeds)

    def write() -> RawNumbers:
        """Write the numbers of every network of the folder."""
        runs = _measured_runs(chosen, data, folder)
        rows = tuple(_measured(training, names) for training, names in runs)
        raw = RawNumbers(chosen.name, data or chosen.data, rows, _origin(run), own_model=model)
        raw.save(Path(out) / RAW)
        return raw

    job = os.environ.get("TORCHELASTIC_RUN_ID", "")
    with _alone() as (rank, world):
        done = [folder / "done" / f"{job}-{other}" for other in range(world)]
        done[0].parent.mkdir(exist_ok=True)
        done[rank].unlink(missing_ok=True)
        for h in hypotheses:
            for number, seed in enumerate(numbers):
                if number % world != rank:
                    continue
                trainings = [run_of(n, seed, chosen, data, folder) for n in h.networks]
                for training in trainings:
                    if report is not None:
                        report(f"{h.row}: {training.name}")
                    training.train(run)
                    measure(training, _wanted(h, training), run)
                for training, epoch in zip(
                    trainings, _equal_epochs(h, trainings), strict=False
                ):
                    measure(training, [(q, epoch) for q in h.quantities], run)
                if rank == 0:
                    write()
        done[rank].touch()
        if rank > 0:
            return None
        while not all(path.exists() for path in done):
            time.sleep(_POLL)
    return write()


def _wanted(h: Hypothesis, training: TrainingRun) -> list[tuple[Quantity, int]]:
    """The quantities and epochs of a network that a hypothesis needs."""
    last = training.recipe.epochs
    epoch = training.warm_up if h.phase == WARM_UP else last
    wanted = [(q, last) for q in _ROW_QUANTITIES] + [(q, epoch) for q in h.quantities]
    if h.equal_fit:
        wanted += [(FIT, e) for e in training.snapshots()]
    return wanted


def _equal_epochs(h: Hypothesis, trainings: Sequence[TrainingRun]) -> Sequence[int]:
    """The epochs of equal training NLL, where the hypothesis is tested there."""
    if not h.equal_fit:
        return ()
    curves = [fit_curve(stored_values(t)) for t in trainings]
    return equal_fit(*curves, early=h.phase == WARM_UP) or ()


def _require_data(folder: Path, data: str) -> None:
    """Require the data with which the experiment in the folder began, or begin it."""
    path = folder / _DATA
    if not path.is_file():
        vp.load_data(data, split="test", limit=1)
        folder.mkdir(parents=True, exist_ok=True)
        write_text(path, data + "\n")
        return
    stored = path.read_text(encoding="utf-8").strip()
    if stored != data:
        raise vp.InputError(
            f"data must be {stored}, on which the networks in {folder} are trained, got "
            f"{data}. Choose another folder for other data."
        )


def _measured_runs(
    scale: Scale, data: str, folder: Path
) -> Iterator[tuple[TrainingRun, list[str]]]:
    """The measured runs of a folder, of all claims and seeds, and their networks."""
    ends = {path.name.rpartition("-seed")[2] for path in folder.glob("*-seed*")}
    for seed in sorted(int(end) for end in ends if end.isdecimal()):  # a copy has another name
        runs: dict[Path, tuple[TrainingRun, list[str]]] = {}
        for name in (n.name for n in NETWORKS.values() if n.model in scale.models):
            run = run_of(name, seed, scale, data, folder)
            runs.setdefault(run.folder, (run, []))[1].append(name)
        yield from (r for r in runs.values() if r[0].finished and stored_values(r[0]))


def _measured(training: TrainingRun, names: Sequence[str]) -> MeasuredRun:
    history = training.history()
    row = history.last_evaluation
    low, high = history.accuracy_interval(row)
    return MeasuredRun(
        name=training.name,
        networks=tuple(names),
        seed=training.seed,
        images=history.provenance.images,
        epochs=training.recipe.epochs,
        warm_up=training.warm_up,
        minutes=round(float(history.seconds[-1]) / 60, 2),
        accuracy=(float(history.test_accuracy[row]), float(low), float(high)),
        curve={
            "epoch": history.epoch.tolist(),
            "training loss": [round(float(v), 5) for v in history.train_loss],
            "test accuracy": [
                None if v != v else round(float(v), 5) for v in history.test_accuracy
            ],
        },
        quantities=stored_values(training),
    )


@contextmanager
def _alone() -> Iterator[tuple[int, int]]:
    """Inside, each process of ``torchrun`` works by itself; gives its rank and their number."""
    rank, world = (int(os.environ.get(n, d)) for n, d in (("RANK", "0"), ("WORLD_SIZE", "1")))
    started = os.environ.pop("WORLD_SIZE", None)
    try:
        yield rank, world
    finally:
        if started is not None:
            os.environ["WORLD_SIZE"] = started


def _origin(run: vp.Run) -> dict[str, Any]:
    origin = run.provenance
    return {
        "command": origin.command,
        "created": datetime.now(UTC).date().isoformat(),
        "visprism": origin.visprism,
        "torch": origin.torch,
        "python": origin.python,
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
        "device": str(run.compute.torch_device),
    }
