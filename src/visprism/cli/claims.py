"""``visprism claims``: the claims of the paper as experiments."""

import argparse
import sys
from argparse import Namespace
from collections.abc import Iterable, Sequence
from pathlib import Path

from visprism.cli.options import json_option
from visprism.cli.output import columns, print_json, records
from visprism.cli.values import folder, positive
from visprism.core.errors import InputError

ACTIONS = ("list", "run", "report")
OUT = Path("claims")
SCALES = ("small", "medium", "paper", "test")  # a test compares them with the declared ones


def claims(arguments: Namespace) -> None:
    """List the claims, run their experiments, or write the report."""
    if arguments.action != "run":
        _refuse_options(arguments)
    if arguments.action == "list":
        _list(as_json=arguments.json)
    elif arguments.action == "run":
        _run(arguments)
    else:
        _report(arguments.out or OUT, as_json=arguments.json)


def _refuse_options(arguments: Namespace) -> None:
    """Require that no option of `run` is set for another action."""
    given = {
        "CLAIM": arguments.codes,
        "--scale": arguments.scale,
        "--data": arguments.data,
        "--seeds": arguments.seeds,
        "--device": arguments.device,
    }
    if arguments.action == "list":
        given["--out"] = arguments.out
    for name, value in given.items():
        if value:
            raise InputError(
                f"{name} must not be given to `visprism claims {arguments.action}`. "
                "`visprism claims run` takes it."
            )


def _list(*, as_json: bool) -> None:
    from visprism.claims.hypotheses import PRIMARY
    from visprism.results.paper_claims import PAPER_CLAIMS

    rows = [
        (
            h.row,
            PAPER_CLAIMS[h.claim].source,
            f"{h.quantity}: {h}",
            PAPER_CLAIMS[h.claim].statement,
        )
        for h in PRIMARY.values()
    ]
    _print(["claim", "source", "primary hypothesis", "statement"], rows, as_json=as_json)


def _print(header: Sequence[str], rows: Iterable[Sequence[str]], *, as_json: bool) -> None:
    """A table as text or as JSON."""
    if as_json:
        print_json(records(header, rows))
    else:
        print(columns(header, rows))


def _run(arguments: Namespace) -> None:
    from visprism.claims.experiment import run_claims
    from visprism.core.devices import Compute
    from visprism.core.progress import console_progress
    from visprism.core.provenance import Provenance
    from visprism.core.run import Run

    out = arguments.out or OUT
    try:
        with console_progress() as progress:
            run = Run(
                compute=Compute(arguments.device or "cpu"),
                progress=progress,
                provenance=Provenance(command=arguments.command),
            )
            raw = run_claims(
                arguments.codes or None,
                out=out,
                scale=arguments.scale or "small",
                data=arguments.data or "",
                seeds=arguments.seeds,
                report=lambda line: print(line, file=sys.stderr, flush=True),
                run=run,
            )
    except KeyboardInterrupt as interruption:
        message = f"{out} is kept; the same command resumes"
        raise KeyboardInterrupt(message) from interruption
    if raw is not None:
        _report(out, as_json=arguments.json)


def _report(out: Path, *, as_json: bool) -> None:
    """Print the verdicts, and write the page."""
    from visprism.claims.experiment import RawNumbers
    from visprism.claims.report import HEADER, effects_of, page, table
    from visprism.core.files import write_text

    raw = RawNumbers.load(out)
    _print(HEADER, table(effects_of(raw), "primary"), as_json=as_json)
    path = (out if out.is_dir() else out.parent) / "claims.html"
    write_text(path, page(raw))
    print(f"Wrote {path}", file=sys.stderr if as_json else sys.stdout)


def add(to: argparse.ArgumentParser) -> None:
    """The arguments of ``claims``."""
    to.set_defaults(run=claims)
    to.add_argument(
        "action",
        nargs="?",
        choices=ACTIONS,
        default="list",
        help="list the claims; run: train and measure what they need; report: write the page "
        "of numbers that were measured (default: list)",
    )
    to.add_argument(
        "codes",
        nargs="*",
        metavar="CLAIM",
        help="claims or rows to run, such as C6 or C6a, in this order (default: all that the "
        "scale can decide)",
    )
    to.add_argument(
        "--out", type=folder, metavar="DIR", help=f"folder of the experiment (default: {OUT})"
    )
    to.add_argument(
        "--scale",
        choices=SCALES,
        help="networks, data and training: small or medium (hours or days on a CPU), paper "
        "(GPUs) or test (to "
        "try the machinery in minutes) (default: small)",
    )
    to.add_argument(
        "--data",
        metavar="DATA",
        help="training and test images, see below (default: those of the scale)",
    )
    to.add_argument(
        "--seeds",
        type=positive,
        metavar="N",
        help="trained networks of each kind (default: as the scale states)",
    )
    to.add_argument(
        "--device",
        metavar="NAME",
        help="device: cpu, cuda, cuda:1 or mps (default: cpu)",
    )
    json_option(to, "claims and verdicts")
