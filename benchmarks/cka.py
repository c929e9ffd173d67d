"""What CKA costs: all 61 layers of a ResNet-20 against themselves on 1,000 images.

Ways take turns in one run, so that what else the machine does hits them alike: the forward pass
alone; `visprism.observe` with `CKA` on the layers; and, if asked for, torch-cka (PyPI),
which runs both of its models for all pairs of layers. The table has medians, and the largest
difference of each result from CKA computed in float64 from feature maps that were copied as
each layer gave them.

    python benchmarks/cka.py            # prints the table
    python benchmarks/cka.py --write    # and writes benchmarks/results/cka.json
    uv pip install torch-cka --no-deps --target DIR; python benchmarks/cka.py --torch-cka DIR

Claim: visprism takes at most 2.5 s on two cores, and differs by less than 1e-4.
"""

import argparse
import contextlib
import io
import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import torch
from harness import made_with, options
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from visprism import CKA, Anatomy, dissect, in_memory, layers, load_model, observe, watch
from visprism.core.preprocessing import Preprocessing
from visprism.images.open_data import load_data

RESULTS = Path(__file__).parent / "results" / "cka.json"
BATCH = 50  # Gram matrices cost as much again for each doubling


def main() -> None:
    parser = options(__doc__, RESULTS, images=1000, repeats=5)
    parser.add_argument("--torch-cka", metavar="DIR", help="where it was installed to")
    arguments = parser.parse_args()
    model = load_model("resnet20", seed=0).model
    images = shapes(arguments.images)
    anatomy = layers(dissect(model, images[:2]))
    names = [block.name for block in anatomy]
    results: dict[str, np.ndarray] = {}
    ways: dict[str, Callable[[], np.ndarray | None]] = {
        "forward": lambda: forward_alone(model, images),
        "visprism": lambda: ours(anatomy, images),
    }
    seconds = timed(ways, arguments.repeats, results)
    if arguments.torch_cka:
        sys.path.append(arguments.torch_cka)
        peer: dict[str, Callable[[], np.ndarray | None]]
        peer = {"torch-cka": lambda: torch_cka(model, images, names)}
        seconds |= timed(peer, 0, results)  # once: it takes a minute
    exact = exactly(anatomy, images)
    rows = [
        {
            "way": way,
            "seconds": median(times),
            "difference": float(np.nanmax(np.abs(results[way] - exact)))
            if way in results
            else None,
            "nan": int(np.isnan(results[way]).sum()) if way in results else None,
        }
        for way, times in seconds.items()
    ]
    print_table(rows)
    if arguments.write:
        RESULTS.parent.mkdir(exist_ok=True)
        about = setting(arguments, len(anatomy))
        RESULTS.write_text(json.dumps({"setting": about, "rows": rows}, indent=2))
        print(f"wrote {RESULTS}")


def shapes(number: int) -> Tensor:
    image_set = load_data("shapes?size=32", limit=number)
    order = torch.randperm(number, generator=torch.Generator().manual_seed(0)).numpy()
    pixels, _ = in_memory(image_set.subset(order), Preprocessing((32, 32)))
    return pixels.float() / 127.5 - 1


def timed(
    ways: dict[str, Callable[[], np.ndarray | None]],
    repeats: int,
    results: dict[str, np.ndarray],
) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for repeat in range(repeats + 1):  # the first warms up
        for way, run in ways.items():
            start = time.perf_counter()
            result = run()
            if repeat or not repeats:
                seconds[way].append(time.perf_counter() - start)
            if result is not None:
                results[way] = result
    return seconds


def forward_alone(model: nn.Module, images: Tensor) -> None:
    with torch.no_grad():
        for batch in images.split(BATCH):
            model(batch)


def ours(anatomy: Anatomy, images: Tensor) -> np.ndarray:
    (result,) = observe(anatomy, images.split(BATCH), [CKA()])
    return result.columns()["cka"].reshape(len(anatomy), -1)


def torch_cka(model: nn.Module, images: Tensor, names: list[str]) -> np.ndarray:
    from torch_cka import CKA  # pyrefly: ignore

    device = str(images.device)
    loader = DataLoader(TensorDataset(images, torch.zeros(len(images))), batch_size=BATCH)
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        cka = CKA(model, model, model1_layers=names, model2_layers=names, device=device)
        cka.compare(loader)
    return cka.export()["CKA"].numpy()


def exactly(anatomy: Anatomy, images: Tensor) -> np.ndarray:
    """Mini-batch CKA in float64, kernel by kernel, from copies of the feature maps."""
    total = np.zeros((len(anatomy), len(anatomy)))
    with torch.no_grad(), watch(anatomy) as maps:
        for batch in images.split(BATCH):
            anatomy.model(batch)
            kernels = []
            for x in maps.values():
                flat = x.flatten(1).double().cpu().numpy()
                kernels.append(flat @ flat.T)
                np.fill_diagonal(kernels[-1], 0)
            total += [[len(batch) * hsic(k, m) for m in kernels] for k in kernels]
    root = np.sqrt(total.diagonal())
    order = [list(maps).index(block.name) for block in anatomy]
    return (total / np.outer(root, root))[np.ix_(order, order)]


def hsic(k: np.ndarray, m: np.ndarray) -> float:
    """Song et al. (2012), eq. 5."""
    n = len(k)
    both = k.sum() * m.sum() / ((n - 1) * (n - 2)) - 2 / (n - 2) * (k.sum(0) @ m.sum(0))
    return (np.sum(k * m) + both) / (n * (n - 3))


def setting(arguments: argparse.Namespace, number: int) -> dict:
    """Where the numbers are from."""
    return made_with(
        model="resnet20, random weights",
        layers=number,
        images=arguments.images,
        batch=BATCH,
        repeats=arguments.repeats,
    )


def print_table(rows: list[dict]) -> None:
    print(f"{'way':<11}{'seconds':>8}{'difference':>12}{'NaN':>6}")
    for row in rows:
        is_measured = row["difference"] is not None
        rest = f"{row['difference']:12.1e}{row['nan']:6d}" if is_measured else ""
        print(f"{row['way']:<11}{row['seconds']:8.2f}{rest}")


if __name__ == "__main__":
    main()
