"""What watching costs: Fourier spectra and variances of all blocks, beside a forward pass.

The ways take turns in one run, so that what else the machine does hits them alike: the
forward pass alone; `visprism.observe` with both probes; the same with CKA, and with attention
where there is any; and the method of the paper's notebooks, which keep every feature map,
transform it whole and call `torch.var`. In each repeat the ratio to the forward pass is taken;
the table has medians. Peak memory is that of a fresh process.

    python benchmarks/observe.py            # prints the table
    python benchmarks/observe.py --write    # and writes benchmarks/results/observe.json

Claim: a watched pass takes at most 1.2 times as long as a plain one, with CKA and attention too
at most twice as long, and memory does not grow with the data.
"""

import argparse
import resource
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import timm
import torch
from harness import made_with, options, write
from torch import Tensor, nn

from visprism import CKA, Anatomy, Fourier, Variance, attentions, dissect, observe, watch
from visprism.analyses.attention.attention import Attention

MODELS: dict[str, dict[str, Any]] = {
    "resnet50": {"zero_init_last": False},  # or its random blocks would all be the identity
    "vit_tiny_patch16_224": {},
}
RESULTS = Path(__file__).parent / "results" / "observe.json"
BATCH, SIZE = 16, 224


def main() -> None:
    parser = options(__doc__, RESULTS, repeats=7)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--peak", nargs=2, metavar=("MODEL", "BATCHES"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.peak:
        print(peak_mebibytes(arguments.peak[0], int(arguments.peak[1])))
        return
    rows = [measured(name, arguments.repeats) for name in arguments.models]
    print_table(rows)
    if arguments.write:
        write(RESULTS, setting(arguments), rows)


def built(name: str) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    model = timm.create_model(name, **MODELS[name]).eval()
    return model, torch.randn(BATCH, 3, SIZE, SIZE)


def measured(name: str, repeats: int) -> dict:
    model, images = built(name)
    anatomy = dissect(model, images[:2])
    everything = [Fourier(), Variance(), CKA()]
    everything += [Attention()] if attentions(anatomy) else []
    ways = {
        "forward": lambda: forward_alone(model, images),
        "visprism": lambda: observe(anatomy, [images], [Fourier(), Variance()]),
        "all": lambda: observe(anatomy, [images], everything),
        "notebooks": lambda: notebooks(anatomy, images),
    }
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for repeat in range(repeats + 1):  # the first warms up
        for way, run in ways.items():
            start = time.perf_counter()
            run()
            if repeat:
                seconds[way].append(time.perf_counter() - start)
    ratio = {
        way: median(a / b for a, b in zip(times, seconds["forward"], strict=True))
        for way, times in seconds.items()
    }
    peak = {batches: fresh_peak(name, batches) for batches in (4, 16)}
    return {
        "model": name,
        "blocks": sum(block.layout is not None for block in anatomy),
        "seconds": {way: median(times) for way, times in seconds.items()},
        "ratio": ratio,
        "peak_mebibytes": peak,
    }


def forward_alone(model: nn.Module, images: Tensor) -> None:
    with torch.inference_mode():
        model(images)


def notebooks(anatomy: Anatomy, images: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Keep all maps; then the centered log amplitude in 2-D, its diagonal, and the variance."""
    # No block here changes the map before it in place, so keeping needs no copy.
    with torch.inference_mode(), watch(anatomy, keep=Tensor.detach) as maps:
        anatomy.model(images)
        profiles = []
        for x in maps.values():
            height, width = x.shape[2:]
            level = (torch.fft.fft2(x).abs() + 1e-6).log()
            centered = level.roll((height // 2, width // 2), dims=(2, 3)).mean((0, 1))
            profiles.append((centered.diag()[height // 2 :], x.var((2, 3)).mean()))
    return profiles


def peak_mebibytes(name: str, batches: int) -> float:
    """Peak memory of this process after observing so many batches."""
    model, images = built(name)
    made = (images + i for i in range(batches))
    observe(dissect(model, images[:2]), made, [Fourier(), Variance()])
    status = Path("/proc/self/status")
    if status.exists():  # `ru_maxrss` would count what the parent held when it started this one
        line = next(x for x in status.read_text().splitlines() if x.startswith("VmHWM"))
        return int(line.split()[1]) / 2**10
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def fresh_peak(name: str, batches: int) -> float:
    command = [sys.executable, __file__, "--peak", name, str(batches)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return round(float(output), 1)


def setting(arguments: argparse.Namespace) -> dict:
    """Where the numbers are from."""
    return made_with(
        "timm", batch=BATCH, image=[3, SIZE, SIZE], precision="fp32", repeats=arguments.repeats
    )


def print_table(rows: list[dict]) -> None:
    print(f"{'model':<22}{'way':<11}{'seconds':>8}{'ratio':>7}")
    for row in rows:
        for way, seconds in row["seconds"].items():
            print(f"{row['model']:<22}{way:<11}{seconds:8.3f}{row['ratio'][way]:7.2f}")
        peaks = ", ".join(
            f"{n} batches {mib:.0f} MiB" for n, mib in row["peak_mebibytes"].items()
        )
        print(f"{row['model']:<22}peak memory: {peaks}")


if __name__ == "__main__":
    main()
