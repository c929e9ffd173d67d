"""``python -m experiments.claims``: list the rows, run them, and write the report."""

import argparse
import os
import sys
from pathlib import Path

if __name__ == "__main__":
    # timm reads it once; attention of small heads trains 2 to 3 times faster on a CPU unfused.
    os.environ.setdefault("TIMM_FUSED_ATTN", "0")

import visprism as vp
from experiments.claims.experiment import RawNumbers, run_claims
from experiments.claims.files import write_text
from experiments.claims.hypotheses import PRIMARY
from experiments.claims.networks import SCALES, scale_of
from experiments.claims.report import HEADER, effects_of, page, table
from experiments.claims.statements import STATEMENTS


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.claims",
        description="Test the claims of Park & Kim (2022) on networks of several seeds.",
    )
    add = parser.add_argument
    add(
        "action",
        nargs="?",
        choices=["list", "run", "report"],
        help="list the rows; run: train and measure what they need, and write the report; "
        "report: write the page of numbers that were measured (default: run where --row or "
        "--model is given, else list)",
    )
    add(
        "--row",
        action="append",
        metavar="ROW",
        help="a claim or one of its rows, such as C6 or C6a; repeatable (default: every row "
        "that the networks can decide)",
    )
    add(
        "--model",
        default="",
        metavar="MODEL",
        help="your model, as `visprism train --model` takes it, such as my.py:build, for rows "
        "that measure networks of one architecture (default: the scale's networks)",
    )
    add(
        "--scale",
        choices=list(SCALES),
        default="small",
        help="networks, data and training: small or medium (hours or days on a CPU), paper "
        "(GPUs) or test (to try the machinery in minutes) (default: small)",
    )
    add("--data", default="", help="training and test images by name (default: the scale's)")
    add("--seeds", type=int, help="trained networks of each kind (default: the scale's)")
    add("--device", help="as torch names it (default: a GPU if there is one)")
    add("--out", type=Path, default=Path("claims"), metavar="DIR", help="default: claims")
    return parser


def _print_rows(model: str) -> None:
    scale = scale_of("small", model)
    for h in (h for h in PRIMARY.values() if h.testable(scale)):
        statement = STATEMENTS[h.claim]
        print(f"{h.row:<5} {h.quantity}: {h.text(scale)}")
        print(f"      {statement.text} ({statement.source})")


def _report(out: Path) -> None:
    raw = RawNumbers.load(out)
    for cells in table(effects_of(raw), "primary"):
        named = zip(HEADER[1:], cells[1:], strict=True)
        print(f"{cells[0]:<5}", "; ".join(f"{name} {cell}" for name, cell in named if cell))
    path = (out if out.is_dir() else out.parent) / "claims.html"
    write_text(path, page(raw))
    print(f"Wrote {path}")


def main(words: list[str] | None = None) -> int:
    """Run a command; the exit code is 2 where it cannot be run, 130 after Ctrl-C."""
    given = _parser().parse_args(words)
    action = given.action or ("run" if given.row or given.model else "list")
    try:
        if action == "list":
            _print_rows(given.model)
        elif action == "report" or run_claims(
            given.row,
            out=given.out,
            scale=given.scale,
            model=given.model,
            data=given.data,
            seeds=given.seeds,
            report=lambda line: print(line, file=sys.stderr, flush=True),
            run=vp.Run().at(given.device),
        ):
            _report(given.out)
    except vp.InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{given.out} is kept; the same command resumes", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
