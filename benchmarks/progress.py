"""How a terminal shows progress: the longest silence, and whether the time left is right.

Commands run on a pseudo-terminal, whose screen is read as a person sees it. A silence is a time
in which the screen does not change. The time left is read after a third, a half and two thirds
of the measurements, and compared with what they took from there.

    uv pip install --target DIR pyte
    PYTHONPATH=DIR python benchmarks/progress.py            # prints the table
    PYTHONPATH=DIR python benchmarks/progress.py --write    # and results/progress.json

Claim: no silence is above two seconds, and after a third the time left is right within 20%.
"""

import os
import pty
import re
import select
import sys
import time
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pyte  # pyrefly: ignore[missing-import] (see above)
from harness import made_with, options, write

RESULTS = Path(__file__).parent / "results" / "progress.json"
COMMANDS = {
    "fourier": "fourier resnet20.shapes --data shapes --limit 256",
    "demo": "demo",
    "examine, 224x224": "examine timm:resnet18 timm:vit_tiny_patch16_224 "
    "--data shapes?size=224 --limit 200",
}
COLUMNS, LINES = 120, 50
LEFT = re.compile(r"about (\d+) s left")
SHARES = (1 / 3, 1 / 2, 2 / 3)
SHORTEST = 10.0  # seconds of measurements whose time left, in whole seconds, is compared

Moment = tuple[float, float]  # seconds from the start, and those that are said to be left


def main() -> None:
    arguments = options(__doc__, RESULTS, repeats=3).parse_args()
    rows = []
    for case, command in COMMANDS.items():
        for _ in range(arguments.repeats):
            row = {"case": case} | measured(command.split())
            rows.append(row)
            errors = ", ".join(f"{e:+.0%}" for e in row["errors"]) or "not defined"
            print(
                f"{case}: {row['seconds']:.0f} s, longest silence {row['silence']:.1f} s, "
                f"error of the time left after 1/3, 1/2 and 2/3: {errors}",
                flush=True,
            )
    if arguments.write:
        write(RESULTS, setting(), rows)


def measured(words: list[str]) -> dict:
    """Seconds, the longest silence, and relative errors of the time left."""
    with TemporaryDirectory() as folder:
        process, terminal = pty.fork()
        if process == 0:
            os.environ |= {"TERM": "xterm", "COLUMNS": str(COLUMNS), "LINES": str(LINES)}
            arguments = [sys.executable, "-m", "visprism", *words, "--out", folder]
            os.execv(sys.executable, arguments)
        start = time.monotonic()
        changes, moments = followed(terminal, start)
        _, status = os.waitpid(process, 0)
    if os.waitstatus_to_exitcode(status):
        raise RuntimeError(f"{' '.join(words)} failed")
    measurements = moments[-1][0] - moments[0][0] if moments else 0.0
    silences = [after - before for before, after in pairwise(changes)]
    return {
        "seconds": time.monotonic() - start,
        "measurements": measurements,
        "silence": max(silences),
        "errors": [error(moments, s) for s in SHARES] if measurements > SHORTEST else [],
    }


def followed(terminal: int, start: float) -> tuple[list[float], list[Moment]]:
    """When the screen changes, and what it says is left, until the command ends."""
    screen = pyte.Screen(COLUMNS, LINES)
    stream = pyte.ByteStream(screen)
    changes, moments, before = [0.0], [], []
    while True:
        if not select.select([terminal], [], [], 0.2)[0]:
            continue
        try:
            stream.feed(os.read(terminal, 1 << 16))
        except OSError:  # the command has closed it
            return changes, moments
        now = time.monotonic() - start
        if screen.display != before:
            before = list(screen.display)
            changes.append(now)
        if match := LEFT.search("\n".join(before)):
            moments.append((now, float(match[1])))


def error(moments: list[Moment], share: float) -> float:
    """Relative error of the time left after a share of the measurements."""
    begin, end = moments[0][0], moments[-1][0]
    at = begin + share * (end - begin)
    now, left = min(moments, key=lambda moment: abs(moment[0] - at))
    return left / (end - now) - 1


def setting() -> dict:
    """Where the numbers are from."""
    return made_with("rich")


if __name__ == "__main__":
    main()
