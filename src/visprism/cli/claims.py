"""``visprism claims``: the claims of the paper as experiments."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from visprism.cli.arguments import AUTO, DATA, DEVICE, Printing, argument
from visprism.cli.output import print_table
from visprism.core.interruption import on_interruption
from visprism.core.options import check_used

OUT = Path("claims")
SCALES = ("small", "medium", "paper", "test")  # a test compares them with the declared ones


@dataclass(frozen=True, kw_only=True)
class Claims(Printing):
    """Test the claims of Park & Kim (2022) on networks trained from several seeds."""

    group, epilog = "studies", DATA
    action: Literal["list", "run", "report"] = argument(
        "list",
        "list the claims; run: train and measure what they need; report: write the page of "
        "numbers that were measured",
        "ACTION",
        positional=True,
    )
    codes: tuple[str, ...] = argument(
        (),
        "claims or rows to run, such as C6 or C6a, in this order (default: all that the scale "
        "can decide)",
        "CLAIM",
        positional=True,
    )
    out: Path | None = argument(None, f"folder of the experiment (default: {OUT})", "DIR")
    scale: Literal["small", "medium", "paper", "test"] | None = argument(
        None,
        "networks, data and training: small or medium (hours or days on a CPU), paper (GPUs) "
        "or test (to try the machinery in minutes) (default: small)",
    )
    data: str = argument(
        "", "training and test images, see below (default: the scale's)", "DATA"
    )
    seeds: int | None = argument(
        None, "trained networks of each kind (default: as the scale states)", minimum=1
    )
    device: str = argument("", f"{DEVICE} (default: {AUTO})", "NAME")

    def run(self) -> None:
        """List the claims, run their experiments, or write the report."""
        if self.action != "run":
            names = ["codes", "scale", "data", "seeds", "device"]
            names += ["out"] if self.action == "list" else []
            check_used(self, dict.fromkeys(names, "the action run"))
        if self.action == "list":
            self._list()
        elif self.action == "run":
            self._measure()
        else:
            self._report()

    def _list(self) -> None:
        from visprism.claims.hypotheses import PRIMARY
        from visprism.estimates.questions import PAPER_CLAIMS

        rows = [
            (
                h.row,
                PAPER_CLAIMS[h.claim].source,
                f"{h.quantity}: {h}",
                PAPER_CLAIMS[h.claim].statement,
            )
            for h in PRIMARY.values()
        ]
        header = ["claim", "source", "primary hypothesis", "statement"]
        print_table(header, rows, as_json=self.json)

    def _measure(self) -> None:
        from visprism.claims.experiment import run_claims
        from visprism.core.progress import console_progress

        out = self.out or OUT
        text = f"{out} is kept; the same command resumes"
        with on_interruption(lambda: text), console_progress() as progress:
            raw = run_claims(
                self.codes or None,
                out=out,
                scale=self.scale or "small",
                data=self.data,
                seeds=self.seeds,
                report=lambda line: print(line, file=sys.stderr, flush=True),
                run=replace(self, device=self.device or AUTO).new_run(progress),
            )
        if raw is not None:
            self._report()

    def _report(self) -> None:
        from visprism.claims.experiment import RawNumbers
        from visprism.claims.report import HEADER, effects_of, page, table
        from visprism.core.files import write_text

        out = self.out or OUT
        raw = RawNumbers.load(out)
        print_table(list(HEADER), table(effects_of(raw), "primary"), as_json=self.json)
        path = (out if out.is_dir() else out.parent) / "claims.html"
        write_text(path, page(raw))
        print(f"Wrote {path}", file=sys.stderr if self.json else sys.stdout)
