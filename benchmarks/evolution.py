"""What changes when, in a CNN, a ViT and an AlterNet of the study of claims while they train.

The weights after each epoch are measured on the same test images: `vp.evolve` of the snapshots
of all seeds of each network, which `python -m experiments.claims` writes. Runs are measured in
processes of their own.

    python benchmarks/evolution.py RUNS --data parquet:DIR --write
    python benchmarks/evolution.py --write      # the figure again, from results/evolution.json

Without `--write` the curves are printed only.

RUNS holds the folders cnn-seed3, vit-seed3, alternet-seed3 and those of other seeds.

Claim: none; these are the numbers of docs/howto/watch-a-training.md.
"""

import argparse
import json
import os
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from harness import options

import visprism as vp
from visprism.analyses.evolution import Evolution
from visprism.core.provenance import revision
from visprism.drawing.save import save_figure
from visprism.drawing.style import DEPTH, color_of, paper_style

RESULTS = Path(__file__).parent / "results" / "evolution.json"
FIGURE = Path(__file__).parents[1] / "docs" / "figures" / "evolution"
NETWORKS = {"CNN": "cnn", "ViT": "vit", "AlterNet": "alternet"}
ANALYSES = ("fourier", "variance", "singular-values", "cka", "calibration")
UPDATES = 157  # of an epoch of 10,000 images in batches of 64
_KIND = (
    "high-frequency log amplitude relative to the mean, mean change across the blocks of a kind"
)
PANELS = {
    "NLL (nats)": "NLL",
    "Change of high-frequency\nlog amplitude across blocks": _KIND,
    "Effective rank of the\nlast block / channels": "Effective rank of the last block's tokens "
    "/ channels",
    "CKA of a block with itself\nafter the last epoch": "CKA of a block with itself at the "
    "last step",
}


def main() -> None:
    parser = options(__doc__, images=256)
    parser.add_argument("runs", nargs="?", type=Path)
    parser.add_argument("--data", default="", metavar="DATA")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--write", action="store_true", help="results/ and docs/figures/")
    arguments = parser.parse_args()
    content = json.loads(RESULTS.read_text()) if arguments.runs is None else measured(arguments)
    for curve in content["curves"]:
        print(curve["run"], curve["quantity"], curve["part"], curve["value"])
    if arguments.write:
        RESULTS.write_text(f"{json.dumps(content)}\n", encoding="utf-8")
        save_figure(drawn(content), FIGURE, ["png"])


def measured(arguments: argparse.Namespace) -> dict[str, Any]:
    """The curves of each run over its epochs."""
    os.environ["OMP_NUM_THREADS"] = "1"  # of the processes, which share the cores
    runs = [run for name in NETWORKS.values() for run in arguments.runs.glob(f"{name}-seed*")]
    with ProcessPoolExecutor(arguments.jobs, get_context("spawn")) as pool:
        given = (arguments.data, arguments.images, arguments.device)
        curves = [pool.submit(curves_of, run, *given) for run in sorted(runs)]
        return {
            "curves": [curve for of_run in curves for curve in of_run.result()],
            "images": arguments.images,
            "device": arguments.device,
            "versions": {name: version(name) for name in ("torch", "timm")},
            "revision": revision(),
            "date": datetime.now(UTC).date().isoformat(),
        }


def curves_of(folder: Path, data: str, images: int, device: str) -> list[dict[str, Any]]:
    """Each curve of a run that is drawn, by quantity and part."""
    study = vp.evolve(
        {folder.name: folder / "snapshots"},
        data,
        analyses=ANALYSES,
        limit=images,
        split="test",
        run=vp.Run(compute=vp.Compute(device)),
    )
    assert not [f for f in study.failures if f.kind == "failed"], study.failures
    results = [r for e in study.entries for r in e.results if isinstance(r, Evolution)]
    return [
        {
            "run": folder.name,
            "quantity": rows.quantity,
            "part": part,
            "step": rows.step.tolist(),
            "value": [float(f"{x:.5g}") for x in np.asarray(rows.value)],
        }
        for result in results
        for part, rows in result.parts().items()
        if rows.quantity in PANELS.values()
    ]


@paper_style()
def drawn(content: dict[str, Any]) -> Any:
    """A row for each quantity, a column for each network; blocks from dark to bright."""
    figure, axes = plt.subplots(
        len(PANELS), len(NETWORKS), figsize=(6.5, 7), sharex=True, sharey="row"
    )
    for row, (label, quantity) in zip(axes, PANELS.items(), strict=True):
        row[0].set_ylabel(label)
        for ax, name in zip(row, NETWORKS.values(), strict=True):
            parts = seeds_of(content, name, quantity)
            blocks = len(parts) > 4
            for depth, (part, curves) in zip(
                np.linspace(0, 1, len(parts)), parts.items(), strict=True
            ):
                kind = part.removesuffix(" blocks")
                color = DEPTH(depth) if blocks else color_of(kind)
                epochs = np.array(curves[0]["step"]) / UPDATES
                values = np.array([curve["value"] for curve in curves])
                ax.plot(epochs, values.mean(0), color=color, label=None if blocks else kind)
                ax.fill_between(
                    epochs, values.min(0), values.max(0), color=color, alpha=0.2, linewidth=0
                )
            if not blocks and any(parts):
                ax.legend()
    for ax, name in zip(axes[0], NETWORKS, strict=True):
        ax.set_title(name)
    for ax in axes[-1]:
        ax.set_xlabel("Epoch")
    figure.align_ylabels()
    return figure


def seeds_of(content: dict[str, Any], network: str, quantity: str) -> dict[str, list[dict]]:
    """The curves of the seeds of a network, by part."""
    parts: dict[str, list[dict]] = {}
    for curve in content["curves"]:
        if curve["quantity"] == quantity and curve["run"].startswith(f"{network}-seed"):
            parts.setdefault(curve["part"], []).append(curve)
    return parts


if __name__ == "__main__":
    main()
