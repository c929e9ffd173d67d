"""The claims of Park & Kim (2022) at one scale: raw numbers, tables and figures of the docs.

    python benchmarks/claims.py --data parquet:DIR          # train and measure what is missing
    python benchmarks/claims.py --data parquet:DIR C6 C9    # for these claims
    python benchmarks/claims.py --write                     # results/claims/ and docs/

Every run is resumed. `--write` replaces the block between two markers in docs/claims.md.

Claim: none; these are the figures of docs/claims.md.
"""

import argparse
import os
from dataclasses import replace
from pathlib import Path

# Attention of small heads trains 2 to 3 times faster on a CPU unfused; timm reads this once.
os.environ.setdefault("TIMM_FUSED_ATTN", "0")

import torch

from visprism.claims import RawNumbers, run_claims
from visprism.claims.report import (
    claim_figure,
    learning_curves,
    markdown_effects,
    markdown_runs,
    markdown_table,
    sections_of,
)
from visprism.claims.scales import scale_of
from visprism.claims.verdicts import trained_runs
from visprism.core.files import write_text
from visprism.figures import save_figure

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "claims.md"
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("codes", nargs="*", metavar="CLAIM", help="default: all")
    parser.add_argument("--scale", default="small")
    parser.add_argument("--data", default="", metavar="DATA")
    parser.add_argument("--out", type=Path, default=Path("runs/claims"), metavar="DIR")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--write", action="store_true", help="results/claims/ and docs/")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.write:
        write(RawNumbers.load(arguments.out))
        return
    run_claims(
        arguments.codes or None,
        out=arguments.out,
        scale=arguments.scale,
        data=arguments.data,
        seeds=arguments.seeds,
        report=lambda line: print(line, flush=True),
    )


def write(raw: RawNumbers) -> None:
    """The raw numbers, a figure for each claim, and the tables of the page."""
    folder = Path(__file__).parent / "results" / "claims"
    folder.mkdir(parents=True, exist_ok=True)
    command = f"python benchmarks/claims.py --scale {raw.scale} --data parquet:DIR"
    raw = replace(raw, data=scale_of(raw.scale).data, origin={**raw.origin, "command": command})
    raw.save(folder / f"{raw.scale}.json")
    lines = [f"`{command}`", "", markdown_table(raw), ""]
    for section in sections_of(raw):
        if section.effects is not None:
            stem = ROOT / "docs" / "figures" / "claims" / section.code
            save_figure(claim_figure(section.effects), stem, formats=["png"])
            lines += [f"### {section.code}: {section.verdict}", "", f"{section.statement}.", ""]
            lines += [f"![Effects of {section.code}](figures/claims/{section.code}.png)", ""]
            lines += [markdown_effects(section), ""]
    save_figure(learning_curves(raw), ROOT / "docs/figures/claims/learning_curves", ["png"])
    total = trained_runs(raw).findings()[0].text
    lines += ["### Trained networks", "", f"{total}, on {raw.origin['machine']}.", ""]
    lines += ["![Learning curves of all runs](figures/claims/learning_curves.png)", ""]
    lines += [markdown_runs(raw), ""]
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    write_text(PAGE, f"{before}{BEGIN}\n\n" + "\n".join(lines) + f"\n{END}{after}")


if __name__ == "__main__":
    main()
