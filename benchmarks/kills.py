"""Kills at random instants: a command that is repeated leaves what one without a kill leaves.

Each trial runs a command on small networks in a forked process, sends it SIGKILL, SIGTERM or
SIGINT after a random part of the time that an undisturbed run took, up to six times in a row,
runs the same command until it is complete, and compares what both have written: every number
of ``results.json``, the weights and the history of a training, and whether a temporary file is
left.

    python benchmarks/kills.py --kills 200          # prints a table
    python benchmarks/kills.py --kills 200 --write  # and writes results/kills.jsonl

A trial depends on its number and the seed only. Trials that ``results/kills.jsonl`` has, or a
file that ``--log`` names, are not run again, so that the script itself can be killed.
"""

import argparse
import csv
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from importlib import import_module
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import torch
from safetensors.torch import load_file

from visprism.cli import main as command
from visprism.core.provenance import bytes_of

RESULTS = Path(__file__).parent / "results" / "kills.jsonl"
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
NETS = ("resnet20.shapes", "vit_pico_patch4_32.shapes")
IMAGES = ("--data", "shapes", "--limit", "16", "--formats", "svg")
TRAIN = (
    *("train", "quick", "--model", "resnet20", "--data", "shapes", "--limit", "48"),
    *("--epochs", "3", "--set", "batch_size=16", "--set", "snapshot_every=1", "--test-limit"),
    *("16", "--checkpoint-minutes", "0.001"),
)
FORM = {
    "title": "two",
    "models": [{"name": name} for name in NETS],
    "data": "shapes",
    "analyses": ["anatomy", "variance"],
    "limit": 16,
}
_SECONDS = 10.0  # within which a signal must end a command
_IN_A_ROW = 6  # kills of one command, which is then left to complete
_RELATIVE = 1e-5  # between numbers of two runs
_UNITS = {"ms", "images/s"}
_TIMES = {"seconds", "images_per_second", "created", "machine", "minutes", "hours"}


@dataclass(frozen=True)
class Trial:
    """A command and how its end is compared."""

    words: Callable[[Path], list[str]]  # of the folder that it writes into
    weight: float  # how often it is drawn
    again: tuple[str, ...] = ()  # further words of the repetition


def trials(shared: Path) -> dict[str, Trial]:
    """The commands; `shared` holds what some of them read."""
    parts = [str(shared / name) for name in ("first", "second")]
    analyses = "variance,anatomy"
    return {
        "examine": Trial(
            lambda out: ["examine", *NETS, *IMAGES, "--analyses", analyses, f"--out={out}"], 5
        ),
        "train": Trial(lambda out: [*TRAIN, "--out", str(out)], 5, ("--resume",)),
        "evolve": Trial(
            lambda out: [
                *("evolve", str(shared / "run"), *IMAGES, f"--out={out}"),
                *("--analyses", "variance"),
            ],
            4,
        ),
        "merge": Trial(lambda out: ["merge", *parts, f"--out={out}", "--formats", "svg"], 3),
        "app": Trial(lambda out: ["app", str(out)], 0.5),
        "demo": Trial(lambda out: ["demo", f"--out={out}", "--formats", "svg"], 0.3),
    }


def study_in_app(workspace: Path) -> int:
    """Start a server on a folder, and a study in it, or resume the one that is there."""
    command = [sys.executable, "-m", "visprism", "view", "--out", str(workspace), "--port=0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = server.stdout.readline().split()[1]
        with httpx.Client(base_url=address, timeout=60) as client:
            studies = client.get("api/studies").json()
            if not studies:
                client.post("api/studies", json=FORM).raise_for_status()
            elif studies[0]["state"] != "complete":
                client.post(f"api/studies/{studies[0]['name']}/resume", json={})
            while (state := client.get("api/studies").json()[0]["state"]) != "complete":
                if state not in ("waiting", "running"):
                    return 1
                time.sleep(0.2)
        server.terminate()
    return 0


def prepare(shared: Path) -> None:
    """Make the studies that are merged and the training whose checkpoints are measured."""
    for name, model in zip(("first", "second"), NETS, strict=True):
        words = ["examine", model, *IMAGES, "--analyses", "variance"]
        _wait(_start([*words, f"--out={shared / name}"], shared / "log"))
    _wait(_start([*TRAIN, "--out", str(shared / "run")], shared / "log"))


def _start(words: list[str], log: Path) -> int:
    """The command in a forked process, as its shell starts it."""
    if child := os.fork():
        return child
    code = 1
    with suppress(BaseException):  # of this copy of the interpreter nothing may go on
        file = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        os.dup2(file, 1)
        os.dup2(file, 2)
        os.setpgid(0, 0)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # also in the background
        sys.argv = ["visprism", *words]
        try:
            code = study_in_app(Path(words[1])) if words[0] == "app" else command()
        except KeyboardInterrupt:  # of a study in the app
            code = 130
        except BaseException:
            traceback.print_exc()
    os._exit(code)


def _wait(child: int, seconds: float = math.inf) -> int | None:
    """The exit code, or minus the signal; None after so many seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        number, status = os.waitpid(child, os.WNOHANG)
        if number:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    return None


def _ended(group: int, seconds: float) -> bool:
    """Whether every process of a group ends in time."""
    end = time.monotonic() + seconds
    with suppress(ProcessLookupError):
        while time.monotonic() < end:
            os.killpg(group, 0)
            time.sleep(0.05)
        return False
    return True


def written(folder: Path) -> dict[str, Any]:
    """What a command has left, without times."""
    content: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if ".tmp" in path.name:
            content[name] = "left behind"
        elif path.name in ("failed.txt", "request.json"):
            continue
        elif path.name == "results.json":
            content[name] = _untimed(json.loads(path.read_text("utf-8")))
        elif path.name == "history.csv":
            content[name] = [_untimed(row) for row in csv.DictReader(path.open())]
        elif path.suffix == ".safetensors":
            content[name] = {
                tensor: sha256(bytes_of(value)).hexdigest()
                for tensor, value in load_file(path).items()
            }
        elif path.suffix in (".npz", ".csv", ".svg", ".html", ".md"):
            content[name] = "written"
    return content


def _untimed(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _untimed(v) for k, v in value.items() if k.partition(" (")[0] not in _TIMES}
    if isinstance(value, list):  # without answers about speed
        timed = [isinstance(v, dict) and v.get("unit") in _UNITS for v in value]
        return [_untimed(v) for v, skip in zip(value, timed, strict=True) if not skip]
    return value


def differences(one: Any, other: Any, where: str = "") -> Iterator[str]:
    """Where two results differ by more than rounding."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in one.keys() | other.keys():
            yield from differences(one.get(key), other.get(key), f"{where}/{key}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for i, pair in enumerate(zip(one, other, strict=True)):
            yield from differences(*pair, f"{where}/{i}")
    elif isinstance(one, float) and isinstance(other, float):
        if not math.isclose(one, other, rel_tol=_RELATIVE, abs_tol=1e-9):
            yield f"{where}: {one} and {other}"
    elif one != other:
        yield f"{where}: {str(one)[:60]} and {str(other)[:60]}"


def attempt(
    name: str, trial: Trial, number: int, seed: int, base: Path, expected: dict[str, Any]
) -> dict[str, Any]:
    """Several kills of one command, and what it leaves when it is complete."""
    rng = random.Random(f"{seed} {number}")
    out, log, problems, kills = base / "out", base / "log", [], []
    for repetition in range(_IN_A_ROW):
        sent, part = rng.choice(SIGNALS), rng.random() ** 1.5
        child = _start([*trial.words(out), *trial.again * (repetition > 0)], log)
        code = _wait(child, part * expected["seconds"])
        if code is not None:  # it was complete before
            break
        begin = time.monotonic()
        group = name == "app"  # its server and the study's process
        os.killpg(child, sent) if group else os.kill(child, sent)
        code = _wait(child, _SECONDS)
        if group and not _ended(child, _SECONDS):
            problems.append(f"a process is alive {_SECONDS:g} s after signal {int(sent)}")
        if code is None:
            problems.append(f"alive {_SECONDS:g} s after signal {int(sent)}")
            os.kill(child, signal.SIGKILL)
            _wait(child)
        elif sent != signal.SIGKILL and code not in (0, 1, 128 + sent) and not group:
            problems.append(f"exit code {code} after signal {int(sent)}")
        took = time.monotonic() - begin
        kills.append({"signal": int(sent), "part": round(part, 4), "code": code, "end": took})
    again = _wait(_start([*trial.words(out), *trial.again], log), 600)
    if again != expected["code"]:
        problems.append(f"the repetition ended with {again}: {log.read_text()[-300:]}")
    problems += list(differences(expected["written"], written(out)))[:5]
    if "Traceback" in log.read_text():
        problems.append(log.read_text()[-2000:])
    shutil.rmtree(out, ignore_errors=True)
    log.unlink()
    return {
        "number": number,
        "seed": seed,
        "command": name,
        "kills": kills,
        "problems": problems,
    }


def measured(kills: int, seed: int, log: Path, only: list[str]) -> list[dict[str, Any]]:
    """Every trial, as far as it is not in the log."""
    lines = log.read_text("utf-8").splitlines() if log.exists() else []
    done = {row["number"]: row for row in map(json.loads, lines) if row["seed"] == seed}
    with TemporaryDirectory() as folder:
        shared = Path(folder)
        prepare(shared)
        available = {n: t for n, t in trials(shared).items() if n in only or not only}
        expected: dict[str, dict[str, Any]] = {}
        for number in count():
            if sum(len(row["kills"]) for row in done.values()) >= kills:
                break
            if number in done:
                continue
            rng = random.Random(f"command {seed} {number}")
            name = rng.choices([*available], [t.weight for t in available.values()])[0]
            if name not in expected:
                begin = time.monotonic()
                out = shared / f"undisturbed-{name}"
                code = _wait(_start(available[name].words(out), shared / "log"))
                seconds = time.monotonic() - begin
                expected[name] = {"code": code, "seconds": seconds, "written": written(out)}
            row = attempt(name, available[name], number, seed, shared, expected[name])
            done[number] = row
            with log.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            signals = [kill["signal"] for kill in row["kills"]]
            print(number, name, signals, row["problems"] or "ok", flush=True)
    return [done[number] for number in sorted(done)]


def main() -> None:
    """Run the trials, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--commands", default="", help="only these, separated by commas")
    parser.add_argument("--log", type=Path, default=None, help="file of trials that are done")
    parser.add_argument("--write", action="store_true", help="write results/kills.jsonl")
    arguments = parser.parse_args()
    with TemporaryDirectory() as folder:
        log = arguments.log or (RESULTS if arguments.write else Path(folder) / "kills.jsonl")
        only = [name for name in arguments.commands.split(",") if name]
        rows = measured(arguments.kills, arguments.seed, log, only)
    for name in dict.fromkeys(row["command"] for row in rows):
        of_name = [row for row in rows if row["command"] == name]
        kills = [kill for row in of_name for kill in row["kills"]]
        bad = sum(bool(row["problems"]) for row in of_name)
        slowest = max((kill["end"] for kill in kills), default=0.0)
        print(
            f"{name:<8} {len(kills):4d} kills of {len(of_name)} commands, {bad} with a "
            f"problem, ended within {slowest:.1f} s"
        )
    raise SystemExit(any(row["problems"] for row in rows))


if __name__ == "__main__":
    for module in (
        "timm",
        "visprism.study.examine",
        "visprism.study.files",
        "visprism.training.job",
    ):
        import_module(module)  # once; every command is forked from here
    torch.set_num_threads(1)
    main()
