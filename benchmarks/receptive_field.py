"""What effective receptive fields of all blocks cost, next to a forward pass.

The forward pass alone and `visprism.ReceptiveField` take turns in one run, so that what else
the machine does hits them alike. Seconds are those of the process, not of the wall; the table
has medians of the ratio. A gradient of each block passes through all blocks before it, so that
n blocks of equal cost need at least 1 + n / 2 forward passes.

    python benchmarks/receptive_field.py            # prints the table
    python benchmarks/receptive_field.py --write    # and writes results/receptive_field.json

Claim: none; 4 forward passes are the target, and less than the arithmetic of most networks.
"""

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median

import timm
import torch

from visprism import dissect
from visprism.analyses.features.receptive_field import ReceptiveField
from visprism.core.provenance import revision

MODELS = ("resnet18", "resnet50", "convnext_tiny", "vit_tiny_patch16_224")
RESULTS = Path(__file__).parent / "results" / "receptive_field.json"
IMAGES, SIZE = 8, 224


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    arguments = parser.parse_args()
    rows = []
    for name in arguments.models:
        rows.append(measured(name, arguments.repeats))
        print("{model:<22}{blocks:3} blocks{ratio:7.1f} forward passes".format(**rows[-1]))
    if arguments.write:
        content = {"setting": setting(arguments.repeats), "rows": rows}
        RESULTS.write_text(json.dumps(content, indent=1) + "\n")


def measured(name: str, repeats: int) -> dict:
    """Medians of seconds and of their ratio."""
    torch.manual_seed(0)
    model, images = timm.create_model(name).eval(), torch.randn(IMAGES, 3, SIZE, SIZE)
    anatomy = dissect(model, images[:2])

    def forward() -> None:
        with torch.no_grad():
            model(images)

    forward()  # warms up
    pairs = [
        (seconds_of(forward), seconds_of(lambda: ReceptiveField().of(anatomy, [images])))
        for _ in range(repeats)
    ]
    return {
        "model": name,
        "blocks": sum(block.layout is not None for block in anatomy),
        "forward": median(forward for forward, _ in pairs),
        "receptive fields": median(fields for _, fields in pairs),
        "ratio": median(fields / forward for forward, fields in pairs),
    }


def seconds_of(run: Callable[[], object]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


def setting(repeats: int) -> dict:
    """What the seconds were measured with."""
    return {
        "commit": revision(),
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{os.cpu_count()}-core {platform.machine()} CPU",
        "threads": torch.get_num_threads(),
        "images": [IMAGES, 3, SIZE, SIZE],
        "repeats": repeats,
        "versions": {name: version(name) for name in ("visprism", "torch", "timm")}
        | {"python": platform.python_version()},
    }


if __name__ == "__main__":
    main()
