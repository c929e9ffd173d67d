"""What the strong augmentation of CIFAR costs: batches here, image by image in timm.

Crop, flip, RandAugment m9-n2-mstd1.0, mixup and cutmix, label smoothing and standardizing, from
32x32 images in memory to batches that a model takes. The peer does the same with torchvision's
crop and flip, timm's RandAugment on PIL images, and timm's Mixup. Ways take turns in one run,
on as many threads as `--threads` says; the peer has as many worker processes instead, or none.
Images per second of processor time are those of one core, whatever else the machine does; other
work on the same cores makes two threads wait for each other, and one does not.

    python benchmarks/augmentation.py                # prints the table
    python benchmarks/augmentation.py --write        # and writes results/augmentation.json
    python benchmarks/augmentation.py --device cuda  # ours on the GPU; the peer has no such way

Claim: at least 5 times as many images per second as the peer, on the same cores.
"""

import argparse
import json
import os
import platform
import resource
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median

import torch
from PIL import Image
from timm.data import Mixup
from timm.data.auto_augment import rand_augment_transform
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from visprism.core.devices import Compute
from visprism.core.preprocessing import Preprocessing
from visprism.core.provenance import revision
from visprism.data import STRONG, MemoryFeed, feed

RESULTS = Path(__file__).parent / "results" / "augmentation.json"
WAY = Preprocessing((32, 32), mean=(0.4914, 0.4822, 0.4465), std=(0.247, 0.2435, 0.2616))
CLASSES = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=6144)
    parser.add_argument("--batch-size", type=int, nargs="+", default=[96, 128])
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    rows = [row for size in arguments.batch_size for row in compared(size, arguments)]
    print_table(rows)
    if arguments.write:
        RESULTS.parent.mkdir(exist_ok=True)
        report = setting(arguments) | {"rows": rows}
        RESULTS.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def compared(batch_size: int, arguments: argparse.Namespace) -> list[dict]:
    """The ways in turns; the median of the repeats of each."""
    device = Compute(device=arguments.device).torch_device
    generator = torch.Generator().manual_seed(0)
    pixels = smooth_noise(arguments.images, generator)
    targets = torch.randint(0, CLASSES, (arguments.images,), generator=generator)
    memory_feed = MemoryFeed(
        pixels.to(device),
        targets.to(device),
        num_classes=CLASSES,
        batch_size=batch_size,
        augmentation=STRONG,
        preprocessing=WAY,
        seed=0,
    )
    ways: dict[str, Callable[[int], Iterable]] = {
        "visprism": memory_feed.epoch,
        "visprism, batch by batch": lambda epoch: one_by_one(memory_feed, epoch),
        "timm and PIL": peer(pixels, targets, batch_size, arguments.threads),
    }
    for way in ways.values():
        measured(way, 0, device)  # the first pass loads what is loaded late
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for repeat in range(arguments.repeats):
        for name, way in ways.items():
            seconds[name].append(measured(way, repeat + 1, device))
    rows: list[dict] = []
    for name, times in seconds.items():
        wall, processor = (median(column) for column in zip(*times, strict=True))
        rows.append(
            {
                "way": name,
                "batch_size": batch_size,
                "images_per_second": arguments.images / wall,
                "images_per_processor_second": arguments.images / processor,
            }
        )
    for row in rows:
        for key in ("images_per_second", "images_per_processor_second"):
            row[f"{key}_over_peer"] = row[key] / rows[-1][key]
    return rows


def smooth_noise(number: int, generator: torch.Generator) -> Tensor:
    """Images that are no flat color; what an operation costs does not depend on them."""
    coarse = torch.rand(number, 3, 8, 8, generator=generator)
    fine = torch.nn.functional.interpolate(coarse, size=32, mode="bicubic")
    return (255 * fine).clamp(0, 255).byte()


def measured(
    way: Callable[[int], Iterable], epoch: int, device: torch.device
) -> tuple[float, float]:
    """Seconds by the clock, and of processors, those of worker processes included."""
    start, spent = time.perf_counter(), processor_seconds()
    for _ in way(epoch):
        pass
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start, processor_seconds() - spent


def processor_seconds() -> float:
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def one_by_one(source: MemoryFeed, epoch: int) -> Iterable:
    """What batching several batches together brings: here each goes alone."""
    together = feed._PIXELS
    feed._PIXELS = {"other": 1}
    yield from source.epoch(epoch)
    feed._PIXELS = together


def peer(
    pixels: Tensor, targets: Tensor, batch_size: int, processes: int
) -> Callable[[int], Iterable]:
    """PIL images by torchvision and timm, with a process for each thread that we have."""
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
    mixup = Mixup(STRONG.mixup, STRONG.cutmix, label_smoothing=0.1, num_classes=CLASSES)
    data = Pictures(pixels, targets, change)

    def epoch(_: int) -> Iterable:
        workers = processes if processes > 1 else 0
        context = "fork" if workers else None
        loader = DataLoader(
            data,
            batch_size,
            shuffle=True,
            drop_last=True,
            num_workers=workers,
            multiprocessing_context=context,
        )
        for images, classes in loader:
            yield mixup(images, classes)

    return epoch


class Pictures(Dataset):
    """Arrays as PIL images, changed one by one."""

    def __init__(self, pixels: Tensor, targets: Tensor, change: Callable) -> None:
        self.pixels = pixels.permute(0, 2, 3, 1).contiguous().numpy()
        self.targets, self.change = targets.tolist(), change

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.change(Image.fromarray(self.pixels[index])), self.targets[index]


def setting(arguments: argparse.Namespace) -> dict:
    capability = torch.backends.cpu.get_cpu_capability()
    names = ("visprism", "torch", "torchvision", "timm", "pillow")
    return {
        "machine": f"{os.cpu_count()}-core {platform.machine()} CPU, {capability}",
        "device": arguments.device,
        "threads": torch.get_num_threads(),
        "images": arguments.images,
        "repeats": arguments.repeats,
        "versions": {name: version(name) for name in names}
        | {"python": platform.python_version()},
        "commit": revision(),
        "date": datetime.now(UTC).date().isoformat(),
    }


def print_table(rows: list[dict]) -> None:
    print(f"{'way':<26}{'batch':>6}{'images/s':>10}{'ratio':>7}{'per CPU s':>11}{'ratio':>7}")
    for row in rows:
        print(
            f"{row['way']:<26}{row['batch_size']:6d}{row['images_per_second']:10.0f}"
            f"{row['images_per_second_over_peer']:7.1f}"
            f"{row['images_per_processor_second']:11.0f}"
            f"{row['images_per_processor_second_over_peer']:7.1f}"
        )


if __name__ == "__main__":
    main()
