"""What training costs: the whole loop, beside the reference's way, on the same threads.

ResNet-18 for small images and ViT-Ti with patches of 4, at 32x32 with batches of 96 and the
paper's augmentation. Ours is the update of `visprism.fit` on a `Feed`, in fp32, and in
bf16 with channels-last. The peer is a DataLoader in this process over PIL images, torchvision's
crop and flip, timm's RandAugment and Mixup, and a plain loop with AdamW and clipping in fp32.
Ways take turns in one run.

    python benchmarks/training.py             # prints the table
    python benchmarks/training.py --write     # and writes benchmarks/results/training.json

Claim: ResNet-18 trains at least 1.8 times as fast as the peer, and the pipeline takes less than
5% of a step.
"""

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from statistics import median

import timm
import torch
from harness import made_with, options
from PIL import Image
from timm.data import Mixup
from timm.data.auto_augment import rand_augment_transform
from timm.loss import SoftTargetCrossEntropy
from torch import Tensor, nn
from torch.utils.data import DataLoader
from torchvision import transforms

from visprism import RECIPES, Feed, load_model
from visprism.core.devices import Compute
from visprism.core.preprocessing import Preprocessing
from visprism.images.augmentation import STRONG
from visprism.training.engine import Engine
from visprism.training.losses import task_loss

RESULTS = Path(__file__).parent / "results" / "training.json"
WAY = Preprocessing((32, 32), mean=(0.4914, 0.4822, 0.4465), std=(0.247, 0.2435, 0.2616))
BATCH, CLASSES = 96, 10
MODELS = {
    "ResNet-18": "resnet18_32",
    "ViT-Ti, patch 4": "timm:vit_tiny_patch16_224?img_size=32&patch_size=4",
}

Steps = Iterator[tuple[float, float]]  # each step by the clock, and of it the data


def main() -> None:
    parser = options(__doc__, RESULTS, steps=10)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    rows = [row for name in MODELS for row in compared(name, arguments)]
    print_table(rows)
    if arguments.write:
        RESULTS.parent.mkdir(exist_ok=True)
        report = setting(arguments) | {"rows": rows}
        RESULTS.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def compared(name: str, arguments: argparse.Namespace) -> list[dict]:
    """Each way's median seconds of a step, its data included."""
    generator = torch.Generator().manual_seed(0)
    number = BATCH * (arguments.steps + 1)
    pixels = torch.randint(0, 256, (number, 3, 32, 32), generator=generator, dtype=torch.uint8)
    targets = torch.randint(0, CLASSES, (number,), generator=generator)
    device = arguments.device
    ways: dict[str, Callable[[], Steps]] = {
        "visprism, fp32": lambda: ours(name, pixels, targets, device, "fp32"),
        "visprism, bf16": lambda: ours(name, pixels, targets, device, "bf16"),
        "reference": lambda: peer(name, pixels, targets, device),
    }
    running = {way: begin() for way, begin in ways.items()}
    times_of: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    for step in range(arguments.steps + 1):
        for way, steps in running.items():
            spent = next(steps)
            if step:  # the first loads what is loaded late
                times_of[way].append(spent)
    rows = []
    for way, times in times_of.items():
        wall, data = (median(column) for column in zip(*times, strict=True))
        mean = sum(data for _, data in times) / sum(wall for wall, _ in times)
        speed = BATCH * len(times) / sum(wall for wall, _ in times)
        row = {"model": name, "way": way, "seconds": wall, "data_seconds": data}
        rows.append(row | {"images_per_second": speed, "data_share": mean})
    reference = float(rows[-1]["images_per_second"])
    return [
        row | {"over_reference": float(row["images_per_second"]) / reference} for row in rows
    ]


def ours(name: str, pixels: Tensor, targets: Tensor, device: str, precision: str) -> Steps:
    """Updates as `fit` makes them, on its own data side."""
    compute = Compute(device, precision)
    recipe = replace(RECIPES["strong_cifar"](), precision=precision)
    recipe = replace(recipe, channels_last=precision == "bf16")
    first, rest = (
        Feed(
            pixels[part],
            targets[part],
            num_classes=CLASSES,
            batch_size=BATCH,
            augmentation=STRONG,
            preprocessing=WAY,
            compute=compute,
        )
        for part in (slice(BATCH), slice(BATCH, None))
    )
    engine = Engine(model_of(name), recipe, compute, None, task_loss)
    with engine.training():
        batches, step = chain(first.epoch(0), rest.epoch(0)), 0
        while True:
            start = time.perf_counter()
            batch = next(batches)
            ready = time.perf_counter()
            engine.update(step, 1e-4, batch, len(batch[0])).item()
            step += 1
            yield time.perf_counter() - start, ready - start


def peer(name: str, pixels: Tensor, targets: Tensor, device: str) -> Steps:
    """The reference's loop: images one by one, a plain step in fp32."""
    color = tuple(round(255 * value) for value in WAY.mean)
    change = transforms.Compose(
        [
            transforms.RandomCrop(32, padding=4),
            transforms.RandomHorizontalFlip(),
            rand_augment_transform(STRONG.rand_augment, {"img_mean": color}),
            transforms.ToTensor(),
            transforms.Normalize(WAY.mean, WAY.std),
        ]
    )
    pictures = [Image.fromarray(p.permute(1, 2, 0).numpy()) for p in pixels]
    data = list(zip(pictures, targets.tolist(), strict=True))

    def collated(pairs: list[tuple[Image.Image, int]]) -> tuple[Tensor, Tensor]:
        views = torch.stack([change(picture) for picture, _ in pairs])
        return views, torch.tensor([target for _, target in pairs])

    loader = DataLoader(data, BATCH, shuffle=True, collate_fn=collated)  # pyrefly: ignore
    mixup = Mixup(STRONG.mixup, STRONG.cutmix, label_smoothing=0.1, num_classes=CLASSES)
    model, loss_function = model_of(name).to(device).train(), SoftTargetCrossEntropy()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.05)
    batches = iter(loader)
    while True:
        start = time.perf_counter()
        images, probabilities = mixup(*(tensor.to(device) for tensor in next(batches)))
        ready = time.perf_counter()
        optimizer.zero_grad()
        loss = loss_function(model(images), probabilities)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        loss.item()
        yield time.perf_counter() - start, ready - start


def model_of(name: str) -> nn.Module:
    """The same network for every way."""
    text = MODELS[name]
    if not text.startswith("timm:"):
        return load_model(text).model
    options = {"img_size": 32, "patch_size": 4, "num_classes": CLASSES}
    return timm.create_model("vit_tiny_patch16_224", **options)


def setting(arguments: argparse.Namespace) -> dict:
    """Where the numbers are from."""
    return made_with(
        "torchvision",
        "timm",
        "pillow",
        device=arguments.device,
        batch_size=BATCH,
        steps=arguments.steps,
    )


def print_table(rows: list[dict]) -> None:
    print(f"{'model':<18}{'way':<18}{'images/s':>9}{'ratio':>7}{'s/step':>8}{'data':>7}")
    for row in rows:
        print(
            f"{row['model']:<18}{row['way']:<18}{row['images_per_second']:9.1f}"
            f"{row['over_reference']:7.2f}{row['seconds']:8.2f}{row['data_share']:7.1%}"
        )


if __name__ == "__main__":
    main()
