"""What visprism costs on a GPU, beside its peers, in one run of about a minute and a half.

Watching a pass, Hessian eigenvalues, points of a loss landscape, training steps, predictions,
predictions of photographs that are decoded meanwhile, and CKA. All ways compute in float32 with
TF32 off, lie on one GPU and take turns in one process. A way runs once to warm up and then as
often as is asked for; one that takes over 4 s counts its first run alone. Times are of the wall
clock, between two synchronizations; memory is the peak that torch allocated meanwhile, weights
and data of all ways included. Rows are written one by one, and a way that fails has its error
there.

    python benchmarks/gpu.py --out FILE [--peers DIR]     # of curvature.py; and torch-cka
        [--photos DIR]    # DIR/CLASS/IMAGE
    python benchmarks/gpu.py --out FILE --device cpu --tiny    # whether each row runs
"""

import argparse
import copy
import importlib
import json
import os
import platform
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

import cka  # pyrefly: ignore
import curvature  # pyrefly: ignore
import landscape  # pyrefly: ignore
import numpy as np
import observe  # pyrefly: ignore
import timm
import torch
from harness import options
from timm.data import create_transform
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset
from torchvision.datasets import ImageFolder

import visprism as vp
from visprism import Feed, Recipe, attentions, dissect, fit, layers, load_model
from visprism.analyses.attention.attention import Attention
from visprism.core.devices import Compute
from visprism.core.preprocessing import Preprocessing
from visprism.core.provenance import revision
from visprism.images.batches import batches
from visprism.images.open_data import load_data
from visprism.loss.eigenvalues import top_eigenvalues
from visprism.loss.objective import Objective
from visprism.loss.planes import random_planes

HALF = Preprocessing((32, 32), mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
PACKAGES = ("torch", "torchvision", "timm", "numpy", "scipy")
PACKAGES += ("pyhessian", "hessian-eigenthings", "curvlinops-for-pytorch", "torch-cka")
TASKS = ("watching", "predict", "decoding", "training", "landscape", "cka", "hessian")
LONG = 4.0  # seconds
Ways = Mapping[str, Callable[[], Any]]
Row = dict[str, Any]


class Benchmark:
    """The device, the sizes, and the rows so far."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.device, self.tiny, self.out = arguments.device, arguments.tiny, arguments.out
        self.repeats, self.tasks = arguments.repeats, arguments.tasks
        self.peers, self.photos = arguments.peers, arguments.photos
        self.report: Row = {"setting": setting(arguments), "rows": []}
        self.begun = time.perf_counter()

    def measure(self, task: str, model: str, prepare: Callable[[], tuple[Ways, Row]]) -> Row:
        """The row of a task: how long each way takes, and what else `prepare` says of it."""
        start = time.perf_counter()
        row: Row = {"task": task, "model": model}
        results: Row = {}
        if task not in self.tasks:
            return results
        try:
            ways, about = prepare()
            row |= {**about, "preparing": time.perf_counter() - start, "ways": {}}
            results = self.turns(ways, row["ways"])
        except Exception as error:
            row |= {"error": described(error), "traceback": traceback.format_exc()}
        row["row_seconds"] = time.perf_counter() - start
        self.report["rows"].append(row)
        self.write()
        print(f"{task}, {model}: {row['row_seconds']:.1f} s {row.get('error', '')}", flush=True)
        for way, of in row.get("ways", {}).items():
            number = f"{of['seconds']:9.4f} s" if "seconds" in of else of["error"]
            print(f"  {way:<28}{number} {of.get('peak_mebibytes', '')}", flush=True)
        return results

    def turns(self, ways: Ways, of: dict[str, Row]) -> Row:
        """The last result of each way; its seconds and its peaks go to `of`."""
        results: Row = {}
        done: set[str] = set()
        of |= {way: {"all_seconds": []} for way in ways}
        for repeat in range(self.repeats + 1):
            for way in [way for way in ways if way not in done]:
                try:
                    seconds, results[way] = self.timed(ways[way], of[way])
                except Exception as error:
                    of[way] |= {"error": described(error), "traceback": traceback.format_exc()}
                    done.add(way)
                    continue
                of[way].setdefault("first_run_seconds", seconds)
                if repeat or seconds > LONG:
                    of[way]["all_seconds"].append(seconds)
                    of[way]["seconds"] = median(of[way]["all_seconds"])
                if not repeat and seconds > LONG:
                    done.add(way)
        return results

    def timed(self, run: Callable[[], Any], of: Row) -> tuple[float, Any]:
        """Seconds of a run between synchronizations, and its result; memory goes to `of`."""
        on_gpu = self.device.startswith("cuda")
        if on_gpu:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            of["before_mebibytes"] = round(torch.cuda.memory_allocated() / 2**20, 1)
        start = time.perf_counter()
        result = run()
        if on_gpu:
            torch.cuda.synchronize()
        seconds = time.perf_counter() - start
        if on_gpu:
            of["peak_mebibytes"] = round(torch.cuda.max_memory_allocated() / 2**20, 1)
        return seconds, result

    def write(self) -> None:
        """The rows so far, to the file."""
        self.report["setting"]["run_seconds"] = time.perf_counter() - self.begun
        self.out.parent.mkdir(parents=True, exist_ok=True)
        self.out.write_text(json.dumps(self.report, indent=1) + "\n")

    def network(self, name: str) -> nn.Module:
        """A network of timm with random weights, or a tiny one in its place."""
        torch.manual_seed(0)
        if not self.tiny:
            return timm.create_model(name, **observe.MODELS.get(name, {})).eval()
        of_vit: Row = {"img_size": 32, "patch_size": 8, "depth": 2}
        options = of_vit if "vit" in name else {}
        return timm.create_model(
            "vit_tiny_patch16_224" if "vit" in name else "resnet18", **options
        ).eval()

    def images(self, number: int, batch: int) -> list[Tensor]:
        """Batches as a loader gives them: on the CPU, pinned where there is a GPU."""
        number, side, batch = (8, 32, 4) if self.tiny else (number, 224, batch)
        generator = torch.Generator().manual_seed(0)
        images = torch.randn(number, 3, side, side, generator=generator)
        pinned = images.pin_memory() if self.device.startswith("cuda") else images
        return list(pinned.split(batch))


def main() -> None:
    parser = options(__doc__, repeats=5)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="sizes that show whether it runs")
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=TASKS)
    parser.add_argument("--photos", metavar="DIR", help="DIR/CLASS/IMAGE, for decoding")
    parser.add_argument("--peers", metavar="DIR", help="where they were installed to")
    arguments = parser.parse_args()
    if arguments.peers:
        sys.path.append(arguments.peers)
    warnings.simplefilter("ignore")
    with Compute(arguments.device).arithmetic():  # no TF32, for every way
        here = Benchmark(arguments)
        # Loads CUDA's libraries before the first way does.
        maps = nn.Conv2d(3, 8, 3).to(here.device)(torch.randn(4, 3, 34, 34).to(here.device))
        (
            torch.fft.fft2(maps).abs().flatten(1) @ torch.randn(8192, 8).to(here.device)
        ).sum().item()
        for name in ("resnet50", "vit_small_patch16_224"):
            here.measure("watching", name, partial(watching, here, name))
        for name in ("resnet50", "vit_small_patch16_224"):
            results = here.measure("predict", name, partial(prediction, here, name))
            compare(here, results, "plain loop", lambda a, b: float((a - b).abs().max()))
        if here.photos:
            results = here.measure("decoding", "resnet50", partial(decoding, here))
            compare(here, results, "DataLoader", lambda a, b: float((a - b).abs().max()))
        for name in ("resnet20", "vit_pico_patch4_32"):
            here.measure("training", name, partial(training, here, name))
        for name in landscape.MODELS:
            results = here.measure("landscape", name, partial(points, here, name))
            compare(here, results, "reference", landscape.difference)
        here.measure("cka", "resnet20", lambda: similarity(here))
        for name in curvature.STEPS:
            exact: list[np.ndarray] = []
            prepare = partial(hessian, here, name, exact)
            for way, (value, products) in here.measure("hessian", name, prepare).items():
                error = np.abs(np.sort(value) - np.sort(exact[0])) / np.abs(np.sort(exact[0]))
                about = {"products": products, "relative_error": float(error.max())}
                here.report["rows"][-1]["ways"][way] |= about
            here.write()


def compare(here: Benchmark, results: Row, base: str, of: Callable[[Any, Any], float]) -> None:
    """Write to the last row how far the result of each way is from that of one."""
    for way, result in results.items():
        if base in results and result is not None:
            here.report["rows"][-1]["ways"][way]["difference"] = of(result, results[base])
    here.write()


def watching(here: Benchmark, name: str) -> tuple[Ways, Row]:
    model, data = here.network(name).to(here.device), here.images(256, 64)
    anatomy = dissect(model, data[0][:2].to(here.device))
    more = [Attention()] if attentions(anatomy) else []

    def loop(step: Callable[[Tensor], Any]) -> list[Any]:
        return [step(batch.to(here.device, non_blocking=True)) for batch in data]

    ways = {
        "forward": lambda: loop(lambda batch: observe.forward_alone(model, batch)),
        "fourier, variance": lambda: vp.observe(anatomy, data, [vp.Fourier(), vp.Variance()]),
        "with cka, attention": lambda: vp.observe(
            anatomy, data, [vp.Fourier(), vp.Variance(), vp.CKA(), *more]
        ),
        "notebooks": lambda: loop(lambda batch: observe.notebooks(anatomy, batch)),
    }
    return ways, {"batches": len(data), "shape": list(data[0].shape), "attention": bool(more)}


def prediction(here: Benchmark, name: str) -> tuple[Ways, Row]:
    model, data = here.network(name).to(here.device), here.images(1024, 64)
    targets = torch.zeros(len(data[0]), dtype=torch.long)
    labeled = [(batch, targets) for batch in data]

    def loop() -> Tensor:
        with torch.inference_mode():
            moved = (batch.to(here.device, non_blocking=True) for batch in data)
            return torch.cat([model(batch) for batch in moved]).cpu()

    ways = {"plain loop": loop, "visprism": lambda: vp.predict(model, labeled).logits.cpu()}
    return ways, {"batches": len(data), "shape": list(data[0].shape)}


def decoding(here: Benchmark) -> tuple[Ways, Row]:
    """Predictions of photographs from files, which several threads or one decode ahead."""
    model = here.network("resnet50").to(here.device)
    images, size = load_data(f"folder:{here.photos}"), (32, 32) if here.tiny else (224, 224)
    way = Preprocessing(size, HALF.mean, HALF.std, "bilinear", 0.875)
    transform: Any = create_transform(
        (3, size[0], size[1]),
        interpolation="bilinear",
        crop_pct=0.875,
        mean=HALF.mean,
        std=HALF.std,
    )
    folder, ready = ImageFolder(here.photos, transform), here.images(len(images), 64)
    workers = max(1, min(8, torch.get_num_threads() - 1))
    module: Any = importlib.import_module("visprism.images.batches")  # not its function

    def predicted(threads: int) -> Tensor:
        module._THREADS = threads
        return vp.predict(model, batches(images, way, 64)).logits.cpu()

    def loader() -> Tensor:
        pinned = here.device.startswith("cuda")
        loaded = DataLoader(folder, 64, num_workers=workers, pin_memory=pinned)
        with torch.inference_mode():
            moved = (batch.to(here.device, non_blocking=True) for batch, _ in loaded)
            return torch.cat([model(batch) for batch in moved]).cpu()

    def forward() -> None:
        with torch.inference_mode():
            for batch in ready:
                model(batch.to(here.device, non_blocking=True)).cpu()

    ways = {
        "forward": forward,
        "DataLoader": loader,
        "visprism": lambda: predicted(8),
        "visprism, one thread": lambda: predicted(1),
    }
    return ways, {"images": len(images), "workers": workers}


def training(here: Benchmark, name: str) -> tuple[Ways, Row]:
    batch, steps = (4, 2) if here.tiny else (64, 60)
    generator = torch.Generator().manual_seed(0)
    shape = (batch * steps, 3, 32, 32)
    pixels = torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
    targets = torch.randint(0, 10, (len(pixels),), generator=generator)
    recipe = Recipe(epochs=1, batch_size=batch, lr=1e-4, schedule="constant", clip=5.0)
    compute = Compute(here.device)
    feed = Feed(pixels, targets, num_classes=10, batch_size=batch, preprocessing=HALF)
    feed = replace(feed, compute=compute)
    own, plain = (load_model(name, seed=0).model.to(here.device) for _ in range(2))
    pairs = TensorDataset(pixels.float() / 127.5 - 1, targets)

    def loop() -> None:
        loader = DataLoader(pairs, batch, shuffle=True, pin_memory=compute.device != "cpu")
        optimizer = torch.optim.AdamW(plain.parameters(), lr=1e-4, weight_decay=0.05)
        plain.train()
        for images, classes in loader:
            images = images.to(here.device, non_blocking=True)
            optimizer.zero_grad()
            cross_entropy(plain(images), classes.to(here.device, non_blocking=True)).backward()
            nn.utils.clip_grad_norm_(plain.parameters(), 5.0)
            optimizer.step()

    ways = {"visprism": lambda: (fit(own, feed, recipe), None)[1], "plain loop": loop}
    return ways, {"steps": steps, "batch": batch, "augmentation": "none"}


def points(here: Benchmark, name: str) -> tuple[Ways, Row]:
    number, side = (32, 3) if here.tiny else (1000, 5)
    model = load_model(landscape.MODELS[name], seed=0).model.to(here.device).eval()
    data = list(batches(load_data("shapes", limit=number), HALF, landscape.LOADER))
    images, targets = (torch.cat(part) for part in zip(*data, strict=True))
    (plane,) = random_planes(model, points=side, reach=0.2)
    loader = DataLoader(TensorDataset(images, targets), landscape.LOADER)

    def forward() -> None:
        held = images.to(here.device).split(landscape.LOADER)
        with torch.inference_mode():
            for batch in [batch for _ in plane.points() for batch in held]:
                model(batch)

    ways = {
        "forward": forward,
        "visprism": lambda: landscape.ours(model, data, plane, "fp32"),
        "reference": lambda: landscape.reference(model, loader, plane),
    }
    counted = {"forward": side**2, "visprism": side**2 + 1, "reference": side**2}
    return ways, {"images": number, "points": counted}  # ours measures the middle once more


def similarity(here: Benchmark) -> tuple[Ways, Row]:
    model = load_model("resnet20", seed=0).model.to(here.device).eval()
    images = cka.shapes(100 if here.tiny else 1000).to(here.device)
    anatomy = layers(dissect(model, images[:2]))
    names = [block.name for block in anatomy][: 3 if here.tiny else None]
    few = images[: 2 * cka.BATCH]  # torch-cka takes as long as these few times
    ways: dict[str, Callable[[], Any]] = {
        "forward": lambda: cka.forward_alone(model, images),
        "visprism": lambda: cka.ours(anatomy, images),
        "visprism, 100 images": lambda: cka.ours(anatomy, few),
    }
    if here.peers:  # a copy, as its hooks stay
        ways["torch-cka, 100 images"] = lambda: cka.torch_cka(copy.deepcopy(model), few, names)
    return ways, {"images": len(images), "layers": len(anatomy)}


def hessian(here: Benchmark, name: str, exact: list[np.ndarray]) -> tuple[Ways, Row]:
    images, targets = (t.to(here.device) for t in curvature.shapes("test", curvature.BATCH))
    torch.manual_seed(0)
    if here.tiny:  # the peers of a real network take minutes on a CPU
        head = [nn.Conv2d(3, 8, 3, 4, 1), nn.GELU(), nn.Flatten(), nn.Linear(512, 10)]
        model = nn.Sequential(*head).eval()
    else:
        resnet = name == "resnet20"
        model = curvature.trained_resnet(here.device) if resnet else curvature.vit_tiny()
    model = model.to(here.device)
    double = copy.deepcopy(model).double()
    exact.append(curvature.arpack(double, images.double(), targets))  # in float64

    def ours(tol: float) -> tuple[np.ndarray, int]:
        found = top_eigenvalues(Objective(model, [(images, targets)]), k=curvature.K, tol=tol)
        return found.value, found.products

    ways: dict[str, Callable[[], Any]] = {
        "visprism, tol=1e-3": lambda: ours(1e-3),
        "visprism, tol=1e-2": lambda: ours(1e-2),
    }
    if here.peers:
        steps = curvature.STEPS[name]
        ways |= {
            "hessian-eigenthings": lambda: curvature.eigenthings(model, images, targets, steps),
            "curvlinops + eigsh": lambda: curvature.curvlinops(model, images, targets),
            "PyHessian": lambda: curvature.pyhessian(model, images, targets),
        }
    return ways, {"batch": len(images), "exact": exact[0].tolist()}


def described(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:600]


def setting(arguments: argparse.Namespace) -> Row:
    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not found"
    cudnn: Any = torch.backends.cudnn  # torch's stubs do not know its `conv`
    operations: Row = {"matmul": torch.backends.cuda.matmul, "conv": cudnn.conv}
    on_gpu = arguments.device.startswith("cuda")
    return {
        "device": torch.cuda.get_device_name(arguments.device) if on_gpu else arguments.device,
        "machine": f"{os.cpu_count()}-core {platform.machine()} CPU",
        "threads": torch.get_num_threads(),
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "precision": "float32; float64 for the exact eigenvalues",
        "fp32_precision": {name: of.fp32_precision for name, of in operations.items()},
        "tiny": arguments.tiny,
        "repeats": arguments.repeats,
        "long": f"a way that takes over {LONG:g} s counts its first run alone",
        "versions": versions,
        "commit": revision(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


if __name__ == "__main__":
    main()
