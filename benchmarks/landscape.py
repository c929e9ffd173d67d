"""What a point of a loss landscape costs: a ResNet-20 and a small ViT on 1,000 images.

Ways take turns in one run, so that what else the machine does hits them alike: a plain forward
pass, at the batch size, the layout and the precision that are fastest for it on this machine;
`visprism.landscape` in single precision and in bfloat16; and the way of the reference's
notebook, rebuilt here: at each point a new state dict is loaded, a loader is gone through, the
softmax is taken before the logarithm, batch means are averaged, and confusion matrices are
counted for each cut-off and each bin of confidence. With --augment images are augmented too:
once by visprism, and at each point anew by the reference.

The table has the median of milliseconds for a point and an image, that over the plain forward
pass, how many points are not finite, and the largest relative difference of the NLL from that
of visprism in single precision.

    python benchmarks/landscape.py            # prints the table
    python benchmarks/landscape.py --write    # and writes benchmarks/results/landscape.json

Claim: visprism takes at most 1.15 times a plain forward pass for a point and an image, without
the passes that re-estimate BatchNorm statistics.
"""

import argparse
import copy
import time
from collections.abc import Callable, Iterable
from itertools import pairwise, product
from pathlib import Path
from statistics import median

import numpy as np
import torch
from harness import made_with, options, write
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from visprism import load_model, statistics
from visprism.core.devices import Compute
from visprism.core.preprocessing import Preprocessing
from visprism.core.run import Run
from visprism.images.batches import batches, fixed_augmentation
from visprism.images.open_data import load_data
from visprism.loss.landscape import landscape
from visprism.loss.planes import Plane, random_planes

RESULTS = Path(__file__).parent / "results" / "landscape.json"
MODELS = {
    "ResNet-20": "resnet20",
    "ViT, 1.8 M": "timm:vit_tiny_patch16_224?img_size=32&patch_size=4&depth=4&num_classes=10"
    "&pretrained=False",
}
BATCHES = (16, 32, 64, 100, 250)  # that the plain forward pass is tried with
LOADER = 128  # of the reference
CUTOFFS, BINS = (0.0, 0.9), np.linspace(0, 1, 11)

Data = Iterable[tuple[Tensor, Tensor]]


def main() -> None:
    parser = options(__doc__, RESULTS, images=1000, repeats=3)
    parser.add_argument("--points", type=int, default=3, help="of the grid, a side")
    parser.add_argument("--reach", type=float, default=0.2)
    parser.add_argument("--data", default="shapes", help="such as parquet:FILE")
    parser.add_argument("--augment", action="store_true")
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    arguments = parser.parse_args()
    rows = [row for name in arguments.models for row in measured(name, arguments)]
    if arguments.write:
        write(RESULTS, setting(arguments), rows)


def measured(name: str, arguments: argparse.Namespace) -> list[dict]:
    model = load_model(MODELS[name], seed=0).model
    image_set = load_data(arguments.data, limit=arguments.images)
    preprocessing = Preprocessing((32, 32), *statistics(image_set))
    data = batches(image_set, preprocessing, LOADER)
    anew: Data = data
    if arguments.augment:
        anew = fixed_augmentation(image_set, preprocessing, LOADER, 10)
    images, targets = (torch.cat(part) for part in zip(*data, strict=True))
    (plane,) = random_planes(model, points=arguments.points, reach=arguments.reach)
    points, work = len(plane.points()), len(plane.points()) * len(images)
    full, half = fastest(model, images, "fp32"), fastest(model, images, "bf16")
    held = (
        list(anew)
        if arguments.augment
        else list(zip(images.split(LOADER), targets.split(LOADER), strict=True))
    )
    loader = anew if arguments.augment else DataLoader(TensorDataset(images, targets), LOADER)
    ways: dict[str, Callable[[], np.ndarray | None]] = {
        "forward, fp32": lambda: repeated(full, points),
        "visprism, fp32": lambda: ours(model, held, plane, "fp32"),
        "forward, bf16": lambda: repeated(half, points),
        "visprism, bf16": lambda: ours(model, held, plane, "bf16"),
        "reference": lambda: reference(model, loader, plane),
    }
    results: dict[str, np.ndarray] = {}
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for repeat in range(arguments.repeats + 1):  # the first warms up
        for way, run in ways.items():
            if way == "reference" and repeat > 1:
                continue  # twice is enough of what takes so long
            start = time.perf_counter()
            result = run()
            if repeat:
                # Of the points of visprism one is the middle, which it measures once more.
                share = points / (points + 1) if way.startswith("visprism") else 1.0
                seconds[way].append(share * (time.perf_counter() - start))
            if result is not None:
                results[way] = result
    plain = {p: median(seconds[f"forward, {p}"]) for p in ("fp32", "bf16")}
    exact = results["visprism, fp32"]
    rows = []
    for way, times in seconds.items():
        losses = results.get(way)
        rows.append(
            {
                "model": name,
                "way": way,
                "milliseconds": 1e3 * median(times) / work,
                "over forward": median(times) / plain["bf16" if "bf16" in way else "fp32"],
                "not finite": None if losses is None else int((~np.isfinite(losses)).sum()),
                "difference": None if losses is None else difference(losses, exact),
            }
        )
    print_table(name, rows)
    return rows


def difference(losses: np.ndarray, exact: np.ndarray) -> float:
    finite = np.isfinite(losses) & np.isfinite(exact)
    return float(np.max(np.abs(losses[finite] / exact[finite] - 1)))


@torch.no_grad()
def fastest(model: nn.Module, images: Tensor, precision: str) -> Callable[[], None]:
    """A plain forward pass over all images, as fast as it can be had."""
    compute = Compute(precision=precision)

    def passing(model: nn.Module, images: Tensor, size: int) -> Callable[[], None]:
        @torch.no_grad()
        def run() -> None:
            with compute.autocast():
                for batch in images.split(size):
                    model(batch)

        return run

    best: tuple[float, Callable[[], None]] | None = None
    for layout, size in product((torch.contiguous_format, torch.channels_last), BATCHES):
        turned = copy.deepcopy(model).to(memory_format=layout)
        first = images[: max(BATCHES)].contiguous(memory_format=layout)
        run = passing(turned, first, size)
        run()
        times = []
        for _ in range(2):
            start = time.perf_counter()
            run()
            times.append(time.perf_counter() - start)
        if best is None or min(times) < best[0]:
            converted = images.contiguous(memory_format=layout)
            best = min(times), passing(turned, converted, size)
    assert best is not None
    return best[1]


def repeated(run: Callable[[], None], times: int) -> None:
    for _ in range(times):
        run()


def ours(model: nn.Module, data: Data, plane: Plane, precision: str) -> np.ndarray:
    return landscape(model, data, [plane], run=Run(compute=Compute(precision=precision))).nll


@torch.no_grad()
def reference(model: nn.Module, loader: Data, plane: Plane) -> np.ndarray:
    """NLL at each point, by the method of the reference's notebook."""
    moved = copy.deepcopy(model)
    weights = copy.deepcopy(model.state_dict())
    device = next(model.parameters()).device
    losses = []
    for a, b in plane.points():
        state = copy.deepcopy(weights)
        for way, direction in ((a, plane.first), (b, plane.second)):
            for name, part in direction.items():
                state[name] = state[name] + way * part.to(state[name])
        moved.load_state_dict(state)
        moved.eval()
        means = []
        for images, targets in loader:
            images, targets = images.to(device), targets.to(device)
            predictions = functional.softmax(moved(images), dim=1)
            logs = torch.log(predictions)
            if targets.ndim > 1:
                means.append(float((-targets * logs).sum(1).mean()))
                targets = targets.argmax(1)
            else:
                means.append(float(functional.nll_loss(logs, targets)))
            count(predictions.cpu().numpy(), targets.cpu().numpy())
        losses.append(np.mean(means))
    return np.array(losses)


def count(predictions: np.ndarray, targets: np.ndarray) -> list[np.ndarray]:
    """Confusion matrices by cut-off, and by bin of confidence; Brier score and top 5."""
    classes = predictions.shape[1]
    confidence, best = predictions.max(1), predictions.argmax(1)
    spans = [span for c in CUTOFFS for span in ((c, 1.0), (0.0, c))]
    spans += list(pairwise(BINS.tolist()))
    tables = []
    for low, high in spans:
        inside = (confidence > low) & (confidence <= high)
        pairs = classes * targets[inside] + best[inside]
        tables.append(np.bincount(pairs, minlength=classes**2).reshape(classes, -1))
    brier = ((np.eye(classes)[targets] - predictions) ** 2).sum(1)
    top = (np.argsort(predictions)[:, -5:] == targets[:, None]).any(1)
    return [*tables, brier, top]


def setting(arguments: argparse.Namespace) -> dict:
    """Where the numbers are from."""
    return made_with(
        data=arguments.data.partition(":")[0],
        images=arguments.images,
        points=arguments.points**2,
        augmented=arguments.augment,
        repeats=arguments.repeats,
    )


def print_table(name: str, rows: list[dict]) -> None:
    print(f"{name:<18}{'ms':>8}{'over forward':>14}{'not finite':>12}{'difference':>12}")
    for row in rows:
        is_finite = row["difference"] is not None
        rest = f"{row['not finite']:12d}{row['difference']:12.1e}" if is_finite else ""
        print(f"  {row['way']:<16}{row['milliseconds']:8.3f}{row['over forward']:14.2f}{rest}")


if __name__ == "__main__":
    main()
