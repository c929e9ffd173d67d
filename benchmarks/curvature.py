"""What Hessian eigenvalues cost: the five leading of one mini-batch of 16 images.

The networks are a ResNet-20 that is trained for some seconds on the procedural shapes, and
timm's ViT-Ti with patches of 4 pixels as it is made. Ways take turns in one run, so that what
else the machine does hits them alike. Errors are relative, the largest of the five, against
eigenvalues that SciPy's ARPACK finds to 1e-7 with products by torch.autograd alone. The
yardstick is what 20 products cost at the rate of a large matrix product on the same machine;
a product takes the arithmetic of six forward passes.

    python benchmarks/curvature.py            # prints the table
    python benchmarks/curvature.py --write    # and writes benchmarks/results/curvature.json
    python benchmarks/curvature.py --peers DIR    # with peers: uv pip install --no-deps
        # --target DIR pyhessian hessian-eigenthings curvlinops-for-pytorch einconv
        # linear_operator

Claim: every value within 1e-3, within 1.5 times the yardstick.
"""

import argparse
import json
import os
import platform
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median

import numpy as np
import timm
import torch
from harness import options
from scipy.sparse.linalg import LinearOperator, eigsh
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import cross_entropy

from visprism import RECIPES, costs, dissect, fit, in_memory, load_model
from visprism.core.devices import Compute
from visprism.core.preprocessing import Preprocessing
from visprism.core.provenance import revision
from visprism.images.open_data import load_data
from visprism.images.training_batches import memory_feed
from visprism.loss.eigenvalues import top_eigenvalues
from visprism.loss.objective import Objective

RESULTS = Path(__file__).parent / "results" / "curvature.json"
BATCH, K = 16, 5
MEAN, STD = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)
STEPS = {"resnet20": 20, "vit_tiny": 30}  # of hessian-eigenthings, so that it is right

Way = Callable[[], tuple[np.ndarray, int]]  # eigenvalues, products


def main() -> None:
    parser = options(__doc__, RESULTS, repeats=5, peer_repeats=1)
    parser.add_argument("--models", nargs="+", default=list(STEPS), choices=list(STEPS))
    parser.add_argument("--peers", metavar="DIR", help="where they were installed to")
    arguments = parser.parse_args()
    if arguments.peers:
        sys.path.append(arguments.peers)
    warnings.simplefilter("ignore")
    rows = [row for name in arguments.models for row in measured(name, arguments)]
    print_table(rows)
    if arguments.write:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps({"setting": setting(arguments), "rows": rows}, indent=2))
        print(f"wrote {RESULTS}")


def measured(name: str, arguments: argparse.Namespace) -> list[dict]:
    images, targets = shapes("test", BATCH)
    model = {"resnet20": trained_resnet, "vit_tiny": vit_tiny}[name]()
    exact = arpack(model, images, targets)

    def ours(tol: float) -> Way:
        def run() -> tuple[np.ndarray, int]:
            eigenpairs = top_eigenvalues(Objective(model, [(images, targets)]), k=K, tol=tol)
            return eigenpairs.value, eigenpairs.products

        return run

    ways = {"visprism, tol=1e-3": ours(1e-3), "visprism, tol=1e-2": ours(1e-2)}
    peers: dict[str, Way] = {}
    if arguments.peers:
        peers = {
            "PyHessian": lambda: pyhessian(model, images, targets),
            "hessian-eigenthings": lambda: eigenthings(model, images, targets, STEPS[name]),
            "curvlinops + eigsh": lambda: curvlinops(model, images, targets),
        }
    eigenpairs: dict[str, tuple[np.ndarray, int]] = {}
    seconds = timed(ways, arguments.repeats, eigenpairs)
    seconds |= timed(peers, arguments.peer_repeats, eigenpairs)
    forward = 2 * BATCH * float(costs(dissect(model, images[:2])).macs.sum())
    yardstick = 20 * 6 * forward / matrix_rate()
    rows: list[dict] = [{"model": name, "way": "yardstick", "seconds": yardstick}]
    for way, times in seconds.items():
        value, products = eigenpairs[way]
        error = np.abs(np.sort(value) - np.sort(exact)) / np.abs(np.sort(exact))
        rows.append(
            {
                "model": name,
                "way": way,
                "seconds": median(times),
                "all_seconds": times,
                "yardsticks": median(times) / yardstick,
                "products": products,
                "error": float(error.max()),
                "within_1e-3": int((error < 1e-3).sum()),
            }
        )
    return rows


def trained_resnet(device: str = "cpu") -> nn.Module:
    model = load_model("resnet20", seed=0).model.to(device)
    recipe = replace(RECIPES["demo_resnet"](), limit=4000, batch_size=64, lr=4e-3)
    images = load_data("shapes", split="train", limit=recipe.limit)
    preprocessing = Preprocessing((32, 32), mean=MEAN, std=STD)
    feed = memory_feed(images, preprocessing, recipe.batch_size, compute=Compute(device))
    fit(model, feed, recipe)
    return model.eval().to(memory_format=torch.contiguous_format)


def vit_tiny() -> nn.Module:
    torch.manual_seed(0)
    arguments = {"img_size": 32, "patch_size": 4, "num_classes": 10}
    return timm.create_model("vit_tiny_patch16_224", **arguments).eval()


def raw_shapes(split: str, number: int) -> tuple[Tensor, Tensor]:
    image_set = load_data("shapes?size=32", split=split, limit=number)
    order = torch.randperm(number, generator=torch.Generator().manual_seed(0)).numpy()
    return in_memory(image_set.subset(order), load_model("resnet20").preprocessing)


def shapes(split: str, number: int) -> tuple[Tensor, Tensor]:
    images, targets = raw_shapes(split, number)
    return images.float() / 127.5 - 1, targets


def arpack(model: nn.Module, images: Tensor, targets: Tensor) -> np.ndarray:
    parameters = list(model.parameters())
    sizes = [p.numel() for p in parameters]
    with sdpa_kernel(SDPBackend.MATH):
        loss = cross_entropy(model(images), targets)
        gradient = torch.autograd.grad(loss, parameters, create_graph=True)

    def product(v: np.ndarray) -> np.ndarray:
        chunks = torch.from_numpy(v).to(parameters[0]).flatten().split(sizes)
        parts = [c.view_as(p) for c, p in zip(chunks, parameters, strict=True)]
        derivatives = torch.autograd.grad(gradient, parameters, parts, retain_graph=True)
        return torch.cat([part.flatten() for part in derivatives]).double().cpu().numpy()

    size = sum(sizes)
    operator = LinearOperator((size, size), matvec=product, dtype=np.float64)  # pyrefly: ignore
    return eigsh(operator, k=K, which="LM", tol=1e-7, return_eigenvectors=False)


def pyhessian(model: nn.Module, images: Tensor, targets: Tensor) -> tuple[np.ndarray, int]:
    from pyhessian import hessian as module  # pyrefly: ignore
    from pyhessian.hessian import hessian_vector_product  # pyrefly: ignore

    count = [0]
    home = sys.modules["pyhessian.hessian"]

    def counted(*args: object) -> object:
        count[0] += 1
        return hessian_vector_product(*args)

    home.hessian_vector_product = counted  # pyrefly: ignore
    try:
        with sdpa_kernel(SDPBackend.MATH):
            data, cuda = (images, targets), images.is_cuda
            peer = module(model, nn.CrossEntropyLoss(), data=data, cuda=cuda)
            values, _ = peer.eigenvalues(maxIter=100, tol=1e-3, top_n=K)
    finally:
        home.hessian_vector_product = hessian_vector_product  # pyrefly: ignore
        model.zero_grad()
    return np.array(values), count[0]


def eigenthings(
    model: nn.Module, images: Tensor, targets: Tensor, steps: int
) -> tuple[np.ndarray, int]:
    from hessian_eigenthings import (  # pyrefly: ignore
        HessianOperator,
        lanczos,
        supervised_loss,
    )

    operator = HessianOperator(
        model, [(images, targets)], supervised_loss(nn.CrossEntropyLoss())
    )
    with sdpa_kernel(SDPBackend.MATH):
        eigenpairs = lanczos(operator, k=K, max_iter=steps, seed=0)
    return eigenpairs.eigenvalues.detach().double().cpu().numpy(), steps


def curvlinops(model: nn.Module, images: Tensor, targets: Tensor) -> tuple[np.ndarray, int]:
    from curvlinops import HessianLinearOperator  # pyrefly: ignore

    count = [0]
    parameters = [p for p in model.parameters() if p.requires_grad]
    with sdpa_kernel(SDPBackend.MATH):
        hessian = HessianLinearOperator(
            model,
            nn.CrossEntropyLoss(),
            parameters,
            [(images, targets)],
            check_deterministic=False,
        )
        scipy_own = hessian.to_scipy()

        def product(v: np.ndarray) -> np.ndarray:
            count[0] += 1
            return scipy_own @ v

        operator = LinearOperator(hessian.shape, matvec=product, dtype=np.float32)  # pyrefly: ignore
        values = eigsh(operator, k=K, which="LM", tol=1e-3, return_eigenvectors=False)
    return values, count[0]


def timed(
    ways: dict[str, Way], repeats: int, results: dict[str, tuple[np.ndarray, int]]
) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(repeats):
        for way, run in ways.items():
            start = time.perf_counter()
            results[way] = run()
            seconds[way].append(time.perf_counter() - start)
    return seconds


def matrix_rate() -> float:
    """Multiplications and additions per second of a large matrix product."""
    a = torch.randn(2048, 2048)
    times = []
    for _ in range(10):
        start = time.perf_counter()
        a @ a
        times.append(time.perf_counter() - start)
    return 2 * 2048**3 / min(times)


def setting(arguments: argparse.Namespace) -> dict:
    names = ("visprism", "torch", "timm", "scipy")
    if arguments.peers:
        names += ("pyhessian", "hessian-eigenthings", "curvlinops-for-pytorch")
    versions = {"python": platform.python_version()}
    for name in names:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not found"
    capability = torch.backends.cpu.get_cpu_capability()
    return {
        "machine": f"{os.cpu_count()}-core {platform.machine()} CPU, {capability}",
        "threads": torch.get_num_threads(),
        "batch": BATCH,
        "k": K,
        "matrix_gflops_per_second": round(matrix_rate() / 1e9, 1),
        "repeats": [arguments.repeats, arguments.peer_repeats],
        "versions": versions,
        "commit": revision(),
        "date": datetime.now(UTC).date().isoformat(),
    }


def print_table(rows: list[dict]) -> None:
    print(
        f"{'model':<10}{'way':<21}{'seconds':>8}{'yardsticks':>12}{'products':>10}{'error':>9}"
    )
    for row in rows:
        rest = ""
        if "products" in row:
            rest = f"{row['yardsticks']:12.2f}{row['products']:10d}{row['error']:9.0e}"
        print(f"{row['model']:<10}{row['way']:<21}{row['seconds']:8.2f}{rest}")


if __name__ == "__main__":
    main()
