"""What networks of the zoo learn on CIFAR-10 by the quick recipe, and in how many minutes.

Each is trained as a user would train it, by `visprism train`, on all 50,000 images, and then
evaluated by `visprism calibration` on all 10,000 test images. A stopped run is resumed.

    python benchmarks/cifar10.py parquet:DIR             # DIR with train and test
    python benchmarks/cifar10.py cifar10 --write         # and writes results/cifar10.json
    python benchmarks/cifar10.py cifar10 --set epochs=30 --models resnet18_32

Claim: none; these are the figures of docs/training.md, with their 95% intervals.
"""

import argparse
import csv
import json
import os
import sys
from pathlib import Path

import torch
from harness import made_with, options

from visprism.cli import main as visprism

RESULTS = Path(__file__).parent / "results" / "cifar10.json"
MODELS = ("resnet20", "vit_pico_patch4_32")
METRICS = ("accuracy", "nll", "ece")
PARTS = {"value": "value", "low": "value_low", "high": "value_high"}


def main() -> None:
    parser = options(__doc__, RESULTS)
    parser.add_argument("data", metavar="DATA")
    parser.add_argument("--models", nargs="+", default=MODELS, metavar="MODEL")
    parser.add_argument("--recipe", default="quick")
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE")
    parser.add_argument("--runs", type=Path, default=Path("runs"), metavar="DIR")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    rows = [trained(name, arguments) for name in arguments.models]
    print(f"{'model':<24}{'accuracy':>10}{'95% interval':>18}{'NLL':>8}{'ECE':>8}{'min':>7}")
    for row in rows:
        low, high = row["accuracy"]["low"], row["accuracy"]["high"]
        print(
            f"{row['model']:<24}{row['accuracy']['value']:10.2%}{f'{low:.2%} - {high:.2%}':>18}"
            f"{row['nll']['value']:8.3f}{row['ece']['value']:8.2%}{row['minutes']:7.1f}"
        )
    if arguments.write:
        report = {"setting": setting(arguments), "rows": rows}
        RESULTS.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def trained(name: str, arguments: argparse.Namespace) -> dict:
    """Train a model, or go on with it, and evaluate what came out."""
    run = arguments.runs / name
    changes = [word for change in arguments.set for word in ("--set", change)]
    named = ["--model", f"{name}?num_classes=10", "--data", arguments.data, "--out", str(run)]
    how = [*changes, "--device", arguments.device, "--log", "tensorboard", "--resume"]
    of = ["--data", arguments.data, "--split", "test", "--batch-size", "250"]
    out = ["--out", str(run / "evaluation"), "--device", arguments.device]
    ran(["train", arguments.recipe, *named, *how])
    ran(["calibration", str(run / "model.safetensors"), *of, *out])
    history = rows_of(run / "history.csv")
    (table,) = (run / "evaluation" / "results").glob("*-calibration-calibration-*.csv")
    metrics = {row["metric"]: row for row in rows_of(table) if row["metric"] in METRICS}
    return {
        "model": name,
        "epochs": len(history),
        "minutes": float(history[-1]["seconds (s)"]) / 60,
        "images_per_second": float(history[-1]["images_per_second (images/s)"]),
        "test_accuracy_by_epoch": [float(row["test_accuracy"]) for row in history],
        "train_loss_by_epoch": [float(row["train_loss (nats)"]) for row in history],
    } | {
        metric: {part: float(row[column]) for part, column in PARTS.items()}
        for metric, row in metrics.items()
    }


def ran(words: list[str]) -> None:
    if code := visprism(words):
        sys.exit(code)


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def setting(arguments: argparse.Namespace) -> dict:
    """Where the numbers are from."""
    return made_with(
        "timm", device=arguments.device, recipe=arguments.recipe, changes=arguments.set
    )


if __name__ == "__main__":
    main()
