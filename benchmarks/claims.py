"""The claims of Park & Kim (2022) at one scale: raw numbers, tables and figures of the docs.

    python benchmarks/claims.py --data parquet:DIR          # train and measure what is missing
    python benchmarks/claims.py --data parquet:DIR C6 C9    # for these claims
    python benchmarks/claims.py --data parquet:DIR --repeat "cnn 10%"  # train seed 0 again
    python benchmarks/claims.py --write                     # results/claims/ and docs/

Every run is resumed. `--write` replaces the block between two markers in docs/claims.md.

Claim: none; these are the figures of docs/claims.md.
"""

import argparse
import json
import os
import platform
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

# Attention of small heads trains 2 to 3 times faster on a CPU unfused; timm reads this once.
os.environ.setdefault("TIMM_FUSED_ATTN", "0")

import torch
from safetensors.torch import load_file

from visprism.claims import RawNumbers, run_claims
from visprism.claims.report import (
    claim_figure,
    learning_curves,
    markdown_effects,
    markdown_runs,
    markdown_table,
    sections_of,
)
from visprism.claims.runs import run_of
from visprism.claims.scales import scale_of
from visprism.claims.verdicts import trained_runs
from visprism.core.files import write_text
from visprism.core.run import Run
from visprism.drawing.save import save_figure

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
    parser.add_argument("--repeat", metavar="ARM", help="train it again, compare the weights")
    parser.add_argument("--write", action="store_true", help="results/claims/ and docs/")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.write:
        write(RawNumbers.load(arguments.out))
        return
    if arguments.repeat:
        repeat(arguments.repeat, arguments.scale, arguments.data, arguments.out)
        return
    run_claims(
        arguments.codes or None,
        out=arguments.out,
        scale=arguments.scale,
        data=arguments.data,
        seeds=arguments.seeds,
        report=lambda line: print(line, flush=True),
    )


def repeat(arm: str, scale: str, data: str, out: Path) -> None:
    """Train seed 0 of an arm again from nothing, and compare every snapshot bit for bit."""
    chosen = scale_of(scale)
    first = run_of(arm, 0, chosen, data, out / scale)
    with TemporaryDirectory() as folder:
        again = run_of(arm, 0, chosen, data, Path(folder))
        history = again.train(Run())
        digests = [
            {path.name: digest(path) for path in weights_of(run.folder)}
            for run in (first, again)
        ]
    losses = [h.train_loss.tolist() for h in (first.history(), history)]
    content = {
        "run": first.name,
        "threads": torch.get_num_threads(),
        "identical": digests[0] == digests[1] and losses[0] == losses[1],
        "sha256": digests[0],
        "again": digests[1],
        "created": datetime.now(UTC).date().isoformat(),
        "torch": torch.__version__,
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
    }
    folder = Path(__file__).parent / "results" / "claims"
    write_text(folder / "repeated_run.json", json.dumps(content, indent=1) + "\n")
    print(content["run"], "identical" if content["identical"] else "differs")


def digest(path: Path) -> str:
    """Of the tensors of a file; its metadata may name another version."""
    state = load_file(path)
    return sha256(b"".join(state[name].numpy().tobytes() for name in sorted(state))).hexdigest()


def weights_of(folder: Path) -> list[Path]:
    """The snapshots and the weights at the end of a run."""
    return [*sorted((folder / "snapshots").glob("*.safetensors")), folder / "model.safetensors"]


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
            lines += [markdown_effects(section.effects), ""]
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
