"""What changes when, in a CNN, a ViT and an AlterNet of the study of claims while they train.

The weights after each epoch are measured on the same test images: `vp.evolve` of the snapshots
of a run of each network, which `benchmarks/claims.py` writes. All are cut after the epoch that
the shortest run has.

    python benchmarks/evolution.py RUNS --data parquet:DIR --write
    python benchmarks/evolution.py --write      # the figure again, from results/evolution.json

Without `--write` the curves are printed only.

RUNS holds the folders cnn-seed3, vit-seed3 and alternet-seed3.

Claim: none; these are the numbers of docs/howto/watch-a-training.md.
"""

import argparse
import json
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

import visprism as vp
from visprism.analyses.evolution import Evolution
from visprism.core.provenance import revision
from visprism.drawing.save import save_figure
from visprism.drawing.style import DEPTH, color_of, paper_style

RESULTS = Path(__file__).parent / "results" / "evolution.json"
FIGURE = Path(__file__).parents[1] / "docs" / "figures" / "evolution"
NETWORKS = {"CNN": "cnn-seed3", "ViT": "vit-seed3", "AlterNet": "alternet-seed3"}
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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="?", type=Path)
    parser.add_argument("--data", default="", metavar="DATA")
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--write", action="store_true", help="results/ and docs/figures/")
    arguments = parser.parse_args()
    if arguments.runs is None:
        content = json.loads(RESULTS.read_text())
    else:
        content = measured(arguments.runs, arguments.data, arguments.images)
    for name, curves in content["curves"].items():
        for curve in curves:
            print(name, curve["quantity"], curve["part"], np.round(curve["value"], 3))
    if arguments.write:
        RESULTS.write_text(f"{json.dumps(content)}\n", encoding="utf-8")
        save_figure(drawn(content), FIGURE, ["png"])


def measured(runs: Path, data: str, images: int) -> dict[str, Any]:
    """The curves of each network over the epochs that all runs have."""
    snapshots = {
        name: {p.name: p for p in sorted((runs / folder / "snapshots").iterdir())}
        for name, folder in NETWORKS.items()
    }
    shared = sorted(set.intersection(*(set(files) for files in snapshots.values())))
    with TemporaryDirectory() as scratch:
        folders = {}
        for name, files in snapshots.items():
            folders[name] = Path(scratch) / name
            folders[name].mkdir()
            for file in shared:
                (folders[name] / file).symlink_to(files[file].resolve())
        study = vp.evolve(
            folders, data, analyses=ANALYSES, images=vp.DataOptions(limit=images, split="test")
        )
    assert not [f for f in study.failures if f.kind == "failed"], study.failures
    return {
        "curves": {name: list(curves_of(study, name)) for name in NETWORKS},
        "images": images,
        "versions": {name: version(name) for name in ("visprism", "torch", "timm")},
        "revision": revision(),
        "date": datetime.now(UTC).date().isoformat(),
    }


def curves_of(study: vp.Study, name: str) -> Any:
    """Each curve of a network, by quantity and part."""
    for entry in study.entries:
        for result in entry.results if entry.models == (name,) else ():
            for part, rows in result.parts().items() if isinstance(result, Evolution) else ():
                estimate = rows.value
                yield {
                    "analysis": entry.analysis,
                    "quantity": rows.quantity,
                    "part": part,
                    "step": rows.step.tolist(),
                    "value": np.asarray(estimate).tolist(),
                    "low": [x if np.isfinite(x) else None for x in estimate.low.tolist()],
                    "high": [x if np.isfinite(x) else None for x in estimate.high.tolist()],
                }


@paper_style()
def drawn(content: dict[str, Any]) -> Any:
    """A row for each quantity, a column for each network; blocks from dark to bright."""
    figure, axes = plt.subplots(
        len(PANELS), len(NETWORKS), figsize=(6.5, 7), sharex=True, sharey="row"
    )
    for row, (label, quantity) in zip(axes, PANELS.items(), strict=True):
        row[0].set_ylabel(label)
        for ax, name in zip(row, NETWORKS, strict=True):
            curves = [c for c in content["curves"][name] if c["quantity"] == quantity]
            blocks = len(curves) > 4
            for depth, curve in zip(np.linspace(0, 1, len(curves)), curves, strict=True):
                kind = curve["part"].removesuffix(" blocks")
                color = DEPTH(depth) if blocks else color_of(kind)
                epochs = np.array(curve["step"]) / UPDATES
                shown = None if blocks else kind or None
                ax.plot(epochs, curve["value"], color=color, label=shown)
                ends = (np.array(curve[end], dtype=float) for end in ("low", "high"))
                if not blocks:
                    ax.fill_between(epochs, *ends, color=color, alpha=0.2, linewidth=0)
            if not blocks and curves[0]["part"]:
                ax.legend()
    for ax, name in zip(axes[0], NETWORKS, strict=True):
        ax.set_title(name)
    for ax in axes[-1]:
        ax.set_xlabel("Epoch")
    figure.align_ylabels()
    return figure


if __name__ == "__main__":
    main()
