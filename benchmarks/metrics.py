"""What metrics cost: every one over 50,000 x 1,000 predictions, beside torchmetrics' three.

Ways take turns in one run, so that what else the machine does hits them alike: one read of
the array (its sum); `visprism.calibration`, with intervals; and accuracy, top-5 and calibration
error of torchmetrics. Seconds are medians of wall clock, `cpu` those of
all threads together; `peak` is how much the process grew beyond the predictions.

    python benchmarks/metrics.py            # prints the table
    python benchmarks/metrics.py --write    # and writes benchmarks/results/metrics.json

Claim: all metrics take at most 0.15 s on two cores, in memory that does not grow with images.
"""

import argparse
import resource
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
from harness import made_with, options, write
from torchmetrics.functional.classification import (
    multiclass_accuracy,
    multiclass_calibration_error,
)

from visprism.analyses.predictions.calibration import calibration
from visprism.passes.outcomes import outcomes
from visprism.passes.predictions import Predictions

RESULTS = Path(__file__).parent / "results" / "metrics.json"


def main() -> None:
    arguments = options(__doc__, RESULTS, images=50_000, classes=1000, repeats=7).parse_args()
    predictions = drawn(arguments.images, arguments.classes)
    ways: dict[str, Callable[[], object]] = {
        "one read": lambda: predictions.logits.sum(),
        "one pass": lambda: outcomes(predictions),
        "all metrics": lambda: calibration(predictions),
        "torchmetrics, 3": lambda: theirs(predictions),
    }
    rows = timed(ways, arguments.repeats)
    print(f"{'way':<16}{'seconds':>9}{'cpu':>8}{'peak MiB':>10}")
    for row in rows:
        print(f"{row['way']:<16}{row['seconds']:9.3f}{row['cpu']:8.3f}{row['peak']:10.0f}")
    if arguments.write:
        write(RESULTS, setting(arguments), rows)


def drawn(images: int, classes: int) -> Predictions:
    """A model that is right for about three quarters of the images."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(images, classes, generator=generator)
    targets = torch.randint(classes, (images,), generator=generator)
    logits[torch.arange(images), targets] += 4
    return Predictions(3 * logits, targets)


def theirs(predictions: Predictions) -> list[torch.Tensor]:
    given = predictions.logits, predictions.targets
    number = predictions.num_classes
    return [
        multiclass_accuracy(*given, num_classes=number, average="micro"),
        multiclass_accuracy(*given, num_classes=number, average="micro", top_k=5),
        multiclass_calibration_error(*given, num_classes=number, n_bins=10),
    ]


def timed(ways: dict[str, Callable[[], object]], repeats: int) -> list[dict]:
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    cpu: dict[str, list[float]] = {way: [] for way in ways}
    grown = dict.fromkeys(ways, 0.0)
    for repeat in range(repeats + 1):  # the first warms up
        for way, run in ways.items():
            before, start, used = peak(), time.perf_counter(), time.process_time()
            run()
            grown[way] += peak() - before
            if repeat:
                seconds[way].append(time.perf_counter() - start)
                cpu[way].append(time.process_time() - used)
    return [
        {"way": w, "seconds": median(seconds[w]), "cpu": median(cpu[w]), "peak": grown[w]}
        for w in ways
    ]


def peak() -> float:
    """The most memory that the process has had so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def setting(arguments: argparse.Namespace) -> dict:
    """Where the numbers are from."""
    return made_with(
        "torchmetrics",
        images=arguments.images,
        classes=arguments.classes,
        repeats=arguments.repeats,
    )


if __name__ == "__main__":
    main()
