"""What forward passes gain where memory that is freed is reused.

Networks with random weights run on 16 images of 224x224, with `reused_memory` and without it in
turns, each in a process of its own: what one has freed is there to be reused by the other.

    python benchmarks/reused_memory.py            # prints the table
    python benchmarks/reused_memory.py --write    # and writes results/reused_memory.json
"""

import argparse
import json
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from statistics import median

import timm
import torch
from harness import made_with, options, write

from visprism.core.memory import reused_memory

RESULTS = Path(__file__).parent / "results" / "reused_memory.json"
MODELS = ("resnet18", "resnet50", "vit_tiny_patch16_224")
PASSES = 7
WAYS = {"returned": nullcontext, "reused": reused_memory}


def main() -> None:
    parser = options(__doc__, RESULTS)
    parser.add_argument("--repeats", type=int, default=3, help="processes of each way")
    parser.add_argument("--case", nargs=2, metavar=("MODEL", "WAY"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        print(json.dumps(seconds(*arguments.case)))
        return
    rows = []
    for model in MODELS:
        times: dict[str, list[float]] = {way: [] for way in WAYS}
        for _ in range(arguments.repeats):
            for way in WAYS:
                times[way].append(in_fresh_process(model, way))
        row = {"model": model} | {way: median(times[way]) for way in WAYS} | {"all": times}
        rows.append(row)
        print(f"{model:<22}" + "".join(f"  {way} {row[way]:.3f} s" for way in WAYS), flush=True)
    if arguments.write:
        write(RESULTS, setting(arguments), rows)


def seconds(model: str, way: str) -> float:
    """Median seconds of a forward pass."""
    torch.manual_seed(0)
    network, images = timm.create_model(model).eval(), torch.randn(16, 3, 224, 224)
    times = []
    with WAYS[way](), torch.no_grad():
        for _ in range(PASSES + 2):
            begin = time.perf_counter()
            network(images)
            times.append(time.perf_counter() - begin)
    return median(times[2:])


def in_fresh_process(model: str, way: str) -> float:
    """The same in a process of its own."""
    command = [sys.executable, __file__, "--case", model, way]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return float(output.splitlines()[-1])


def setting(arguments: argparse.Namespace) -> dict:
    """Where the numbers are from."""
    return made_with("timm", batch=16, passes=PASSES, repeats=arguments.repeats)


if __name__ == "__main__":
    main()
