"""The experiment: train what claims compare, measure it, and keep the raw numbers."""

import json
import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from itertools import count
from math import isfinite, nan
from pathlib import Path
from typing import Any

from visprism.claims.arms import ARMS
from visprism.claims.claim import Claim, quantities_by_arm
from visprism.claims.measuring import is_measured, measure, stored_quantities
from visprism.claims.paper import CLAIMS
from visprism.claims.runs import TrainingRun, run_of, runs_of
from visprism.claims.scales import Scale, scale_of
from visprism.core.errors import InputError
from visprism.core.files import write_text
from visprism.core.provenance import Provenance
from visprism.core.registry import suggestion
from visprism.core.run import DEFAULT_RUN, Run
from visprism.images import load_data

RAW = "claims.json"
_DATA = "data.txt"  # in the folder of a scale: the data of all of its networks
_POLL = 2.0  # seconds between looks for the runs of other processes


@dataclass(frozen=True)
class MeasuredRun:
    """A trained network with its quantities: a row of the raw numbers."""

    name: str
    arms: tuple[str, ...]  # that it belongs to
    seed: int
    images: int  # of training
    epochs: int
    minutes: float
    accuracy: tuple[float, float, float]  # with its 95% interval over test images
    curve: Mapping[str, Sequence[float | int | None]]  # epoch, training loss, test accuracy
    quantities: Mapping[str, float]


@dataclass(frozen=True)
class RawNumbers:
    """All numbers that verdicts follow from, and where they come from."""

    scale: str
    data: str
    runs: tuple[MeasuredRun, ...]
    origin: Mapping[str, Any]  # versions, machine, date, command

    def values(self, arm: str, quantity: str) -> list[float]:
        """A quantity of the runs of an arm, in the order of seeds."""
        runs = sorted((r for r in self.runs if arm in r.arms), key=lambda run: run.seed)
        return [run.quantities[quantity] for run in runs if quantity in run.quantities]

    def save(self, path: Path) -> None:
        """Write them as JSON, whole or not at all."""
        content = asdict(self)
        for run in content["runs"]:
            run["quantities"] = {
                k: v if isfinite(v) else None for k, v in run["quantities"].items()
            }
        write_text(path, json.dumps(content, indent=1, allow_nan=False) + "\n")

    @classmethod
    def load(cls, path: Path) -> "RawNumbers":
        """Read what `save` wrote."""
        if path.is_dir():
            path = path / RAW
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            runs = tuple(_run_from(run) for run in content.pop("runs"))
            return cls(**content, runs=runs)
        except FileNotFoundError:
            raise InputError(
                f"claims must have been run, but {path} does not exist. Run "
                "`visprism claims run` first."
            ) from None
        except (ValueError, TypeError, KeyError, AttributeError, OSError) as error:
            raise InputError(
                f"{path} must hold the numbers of `visprism claims run`, got something else: "
                f"{type(error).__name__}"
            ) from error


def _run_from(stored: dict[str, Any]) -> MeasuredRun:
    """A row of the raw numbers from JSON, which has neither tuples nor NaN."""
    accuracy, low, high = map(float, stored.pop("accuracy"))
    quantities = {
        key: nan if value is None else float(value)
        for key, value in stored.pop("quantities").items()
    }
    return MeasuredRun(
        arms=tuple(stored.pop("arms")),
        accuracy=(accuracy, low, high),
        quantities=quantities,
        **stored,
    )


def claims_of(codes: Iterable[str] | None, scale: Scale) -> list[Claim]:
    """The claims with these codes; None for all that the scale can decide."""
    if codes is None:
        return [claim for claim in CLAIMS.values() if claim.testable(scale)]
    claims = []
    for code in dict.fromkeys(codes):
        if code not in CLAIMS:
            raise InputError(f"unknown claim {code!r}. {suggestion(code, list(CLAIMS))}")
        if not CLAIMS[code].testable(scale):
            raise InputError(f"claim {code} must be tested at another scale, got {scale.name}")
        claims.append(CLAIMS[code])
    return claims


def run_claims(
    codes: Iterable[str] | None = None,
    *,
    out: Path | str,
    scale: str = "small",
    data: str = "",
    seeds: int | None = None,
    report: Callable[[str], None] | None = None,
    run: Run = DEFAULT_RUN,
) -> RawNumbers | None:
    """Train the networks that claims compare, measure them, and write the raw numbers.

    Networks that were trained and measured before are read, so that an interrupted experiment
    resumes and claims share their runs. After each network the raw numbers are written again,
    with those of all networks of the folder, also of other claims. Under ``torchrun`` each
    process trains other networks, and the first one writes and returns the numbers of all; the
    others return None.

    Args:
        codes: of claims, such as "C6"; None for all that the scale can decide.
        out: folder of the experiment; networks are in ``out/SCALE``.
        scale: name of a scale.
        data: training and test images by name; "" for those of the scale.
        seeds: trained networks of each arm; None for the number of the scale.
        report: receives a line for each network, if given.
        run: device and progress; seeds are those of the experiment.
    """
    chosen = scale_of(scale)
    if seeds is not None and seeds < 1:
        raise InputError(f"seeds must be positive, got {seeds}")
    claims = claims_of(codes, chosen)
    needed = quantities_by_arm(claims)
    folder = Path(out) / chosen.name
    _require_data(folder, data or chosen.data)
    numbers = range(chosen.seeds if seeds is None else seeds)
    trainings = runs_of(needed, chosen, data, folder, numbers)
    quantities = {
        t.folder: list({q.key: q for arm in _members(t) for q in needed.get(arm, [])}.values())
        for t in trainings
    }

    def write() -> RawNumbers:
        """Write the numbers of every network of the folder."""
        rows = tuple(_measured(t) for t in _measured_runs(chosen, data, folder))
        raw = RawNumbers(chosen.name, data or chosen.data, rows, _origin(run))
        raw.save(Path(out) / RAW)
        return raw

    with _alone() as (rank, world):
        for number, training in enumerate(trainings):
            if number % world == rank:
                if report is not None:
                    report(f"{number + 1} of {len(trainings)}: {training.name}")
                if is_measured(training, quantities[training.folder]):
                    continue
                training.train(run)
                measure(training, quantities[training.folder], run)
                if rank == 0:
                    write()
        if rank > 0:
            return None
        while not all(is_measured(t, quantities[t.folder]) for t in trainings):
            time.sleep(_POLL)  # other processes have the rest
    return write()


def _require_data(folder: Path, data: str) -> None:
    """Require the data with which the experiment in the folder began, or begin it."""
    path = folder / _DATA
    if not path.is_file():
        load_data(data, split="test", limit=1)
        folder.mkdir(parents=True, exist_ok=True)
        write_text(path, data + "\n")
        return
    stored = path.read_text(encoding="utf-8").strip()
    if stored != data:
        raise InputError(
            f"data must be {stored}, on which the networks in {folder} are trained, got "
            f"{data}. Choose another folder for other data."
        )


def _members(training: TrainingRun) -> list[str]:
    """The arms that a run belongs to."""
    folder = training.folder.parent
    return [
        arm.name
        for arm in ARMS.values()
        if arm.network in training.scale.networks
        and run_of(arm.name, training.seed, training.scale, training.data, folder) == training
    ]


def _measured_runs(scale: Scale, data: str, folder: Path) -> Iterator[TrainingRun]:
    """The measured networks of a folder, of all claims and seeds."""
    arms = [arm.name for arm in ARMS.values() if arm.network in scale.networks]
    for seed in count():
        runs = runs_of(arms, scale, data, folder, [seed])
        if not any(run.folder.is_dir() for run in runs):
            return
        yield from (run for run in runs if run.finished and stored_quantities(run))


def _measured(training: TrainingRun) -> MeasuredRun:
    history = training.history()
    row = history.last_evaluation
    accuracy = float(history.test_accuracy[row])
    low, high = history.accuracy_interval(row)
    return MeasuredRun(
        name=training.name,
        arms=tuple(_members(training)),
        seed=training.seed,
        images=history.provenance.images,
        epochs=training.recipe.epochs,
        minutes=round(float(history.seconds[-1]) / 60, 2),
        accuracy=(accuracy, float(low), float(high)),
        curve={
            "epoch": history.epoch.tolist(),
            "training loss": [round(float(v), 5) for v in history.train_loss],
            "test accuracy": [
                None if v != v else round(float(v), 5) for v in history.test_accuracy
            ],
        },
        quantities=stored_quantities(training),
    )


@contextmanager
def _alone() -> Iterator[tuple[int, int]]:
    """Inside, each process of ``torchrun`` works alone; gives its rank and their number."""
    rank, world = (int(os.environ.get(n, d)) for n, d in (("RANK", "0"), ("WORLD_SIZE", "1")))
    started = os.environ.pop("WORLD_SIZE", None)
    try:
        yield rank, world
    finally:
        if started is not None:
            os.environ["WORLD_SIZE"] = started


def _origin(run: Run) -> dict[str, Any]:
    stated = replace(run.provenance, created=datetime.now(UTC).date().isoformat())
    return {
        "command": stated.command,
        "created": stated.created,
        "visprism": Provenance().visprism,
        "torch": Provenance().torch,
        "python": platform.python_version(),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
        "device": run.compute.device,
    }
