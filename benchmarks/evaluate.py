"""What predictions cost beside the best plain loop, on the same images in the same run.

The plain loop is ``for images in batches: model(images)`` without gradients. Its best form is
searched over batch sizes and channels-last. `visprism.predict` is given batches of the size
that a study has. Ways take turns, so
that what else the machine does hits them alike; seconds are medians over the rounds, and the
ratio is the median of the ratios of each round. `cpu` is the ratio of the CPU time of all
threads, which other programs change less.

    python benchmarks/evaluate.py                  # prints the table
    python benchmarks/evaluate.py --precision bf16
    python benchmarks/evaluate.py --write          # and writes benchmarks/results/evaluate.json

Claim: predictions take at most 1.1 times as long as the best plain loop.
"""

import argparse
import copy
import os
import time
from collections.abc import Callable
from contextlib import nullcontext
from itertools import product
from pathlib import Path
from statistics import median

import timm
import torch
from harness import made_with, options, write
from torch import Tensor, nn

from visprism import load_model
from visprism.core.devices import Compute
from visprism.core.run import Run
from visprism.passes.forward_passes import default_batch_size
from visprism.passes.predict import predict

RESULTS = Path(__file__).parent / "results" / "evaluate.json"
# name: (side of the images, share of the images, batch sizes of the search)
CASES = {
    "resnet20.cifar10": (32, 1.0, (16, 32, 64, 128, 256)),
    "vit_nano_patch4_32.cifar10": (32, 1.0, (16, 32, 64, 128, 256)),
    "timm:resnet18": (224, 0.125, (4, 8, 16, 32)),
    "timm:vit_tiny_patch16_224": (224, 0.125, (4, 8, 16, 32)),
}
GIVEN = 16  # images of the batches of a plain loop as it is often written


def main() -> None:
    parser = options(__doc__, RESULTS, rounds=5)
    parser.add_argument("--images", type=int, default=2048, help="images of 32x32 pixels")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--models", nargs="+", choices=list(CASES), default=list(CASES))
    arguments = parser.parse_args()
    compute = Compute(precision=arguments.precision)
    rows = []
    columns = f"{'best loop':>10}{'loop of 16':>11}{'predict':>9}{'ratio':>7}{'cpu':>6}"
    print(f"{'model':<28}{columns}")
    for name in arguments.models:
        row = measured(name, arguments.images, arguments.rounds, compute)
        rows.append(row)
        print(
            f"{name:<28}{row['best_loop_seconds']:10.3f}{row['loop_of_16_seconds']:11.3f}"
            f"{row['predict_seconds']:9.3f}{row['ratio']:7.2f}{row['cpu_ratio']:6.2f}"
            f"  {row['best_loop']}",
            flush=True,
        )
    if arguments.write:
        RESULTS.parent.mkdir(exist_ok=True)
        write(RESULTS, setting(arguments), rows)


def measured(name: str, number: int, rounds: int, compute: Compute) -> dict:
    side, share, sizes = CASES[name]
    model = timm.create_model(name[5:]) if name.startswith("timm:") else load_model(name).model
    model = model.eval()
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(int(number * share), 3, side, side, generator=generator)
    targets = torch.zeros(len(images), dtype=torch.long)
    studied = default_batch_size(images.shape, compute)
    given = list(zip(images.split(studied), targets.split(studied), strict=True))
    loops = {
        (size, layout): loop(model, images, size, layout, compute)
        for size, layout in product(sizes, ("plain", "channels-last"))
    }
    few = len(images) // 4
    costs = {key: min(timed(run, few)[1] for _ in range(2)) for key, run in loops.items()}
    best = min(costs, key=costs.__getitem__)
    ways: dict[str, Callable[[int | None], object]] = {
        "best_loop": loops[best],
        "loop_of_16": loop(model, images, GIVEN, "plain", compute),
        "predict": lambda _: predict(model, given, run=Run(compute)),
    }
    times: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, run in ways.items():
            times[way].append(timed(run, None))
    pairs = list(zip(times["predict"], times["best_loop"], strict=True))
    ratios, cpu_ratios = ([ours[i] / best_of[i] for ours, best_of in pairs] for i in (0, 1))
    return {
        "model": name,
        "images": len(images),
        "side": side,
        **{f"{way}_seconds": median(s for s, _ in values) for way, values in times.items()},
        "ratio": median(ratios),
        "ratios": ratios,
        "cpu_ratio": median(cpu_ratios),
        "cpu_ratios": cpu_ratios,
        "best_loop": f"batches of {best[0]}, {best[1]}",
        "predict": f"batches of {studied}",
    }


def loop(
    model: nn.Module, images: Tensor, size: int, layout: str, compute: Compute
) -> Callable[[int | None], list[Tensor]]:
    """The plain loop over the first images, all by default."""
    form = copy.deepcopy(model)
    last = torch.channels_last if layout == "channels-last" else None
    if last is not None:
        form = form.to(memory_format=last)

    def run(number: int | None) -> list[Tensor]:
        mixed = nullcontext() if compute.precision == "fp32" else compute.autocast()
        with torch.inference_mode(), mixed:
            batches = images[:number].split(size)
            if last is None:
                return [form(batch) for batch in batches]
            return [form(batch.contiguous(memory_format=last)) for batch in batches]

    return run


def timed(run: Callable[[int | None], object], number: int | None) -> tuple[float, float]:
    """Seconds of wall clock and of CPU time."""
    begin = time.perf_counter(), time.process_time()
    run(number)
    return time.perf_counter() - begin[0], time.process_time() - begin[1]


def setting(arguments: argparse.Namespace) -> dict:
    """Where the numbers are from."""
    return made_with(
        "torchvision",
        "timm",
        load_before=os.getloadavg()[0],
        rounds=arguments.rounds,
        precision=arguments.precision,
    )


if __name__ == "__main__":
    main()
