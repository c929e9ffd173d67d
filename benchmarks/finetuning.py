"""Fine-tune shipped networks on photographs: against random weights, and a loop with timm.

python benchmarks/finetuning.py DIR [--seeds 3] [--write]

DIR is an image folder of ImageNet classes named by wnid. Its dogs, birds and objects are three
classes. The loop uses timm's optimizer with layer decay, its schedule and torchvision's
transforms with the settings of the recipe `finetune`, on the same images.
"""

import argparse
import json
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

import visprism as vp
from visprism.cli import main

RESULTS = Path(__file__).parent / "results" / "finetuning.json"
KINDS = {"dog": (2085000, 2113999), "bird": (1514000, 1861999), "object": (3000000, 4599999)}
MOST, EPOCHS, SIDE, HELD_OUT = 118, 10, 32, 0.3
NETWORKS = ("resnet20.cifar10", "alter_resnet20.cifar10")


def make_folder(source: Path, folder: Path) -> None:
    """Links to the photographs of three kinds, in a folder for each."""
    counts = Counter[str]()
    for path in sorted(source.glob("*/*")):
        number = int(path.parent.name[1:])
        kind = next((k for k, (low, high) in KINDS.items() if low <= number <= high), None)
        if kind is not None and counts[kind] < MOST:
            (folder / kind).mkdir(parents=True, exist_ok=True)
            (folder / kind / path.name).symlink_to(path.resolve())
            counts[kind] += 1


def by_visprism(model: str, photos: Path, seed: int, *extra: str) -> dict:
    """Accuracy after the last epoch, with its interval, and the seconds of the training."""
    with tempfile.TemporaryDirectory() as run:
        words = ["train", "finetune", "--model", model, "--data", f"folder:{photos}"]
        words += ["--size", str(SIDE), "--validation", str(HELD_OUT), "--set", f"seed={seed}"]
        assert main([*words, "--epochs", str(EPOCHS), *extra, "--out", f"{run}/run"]) == 0
        history = vp.Result.load(Path(run, "run", "history.npz"))
        assert isinstance(history, vp.History)
    row = len(history) - 1
    return {
        "accuracy": float(history.test_accuracy[row]),
        "interval": history.accuracy_interval(row),
        "images": history.test_images,
        "seconds": float(history.seconds[row]),
    }


def by_timm(model: str, photos: Path, seed: int) -> dict:
    """The same network, images and settings in a plain loop."""
    images = vp.load_data(f"folder:{photos}")
    training, _ = vp.images.image_set.held_out(images, HELD_OUT, seed=seed)
    assert training.positions is not None
    chosen = set(training.positions.tolist())
    loaded = vp.load_model(model)
    network, way = loaded.model, loaded.preprocessing
    torch.manual_seed(seed)
    network.fc = torch.nn.Linear(64, len(KINDS))
    after = [
        v2.ToImage(),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize(way.mean, way.std),
    ]
    crop = v2.RandomResizedCrop(SIDE, scale=(0.35, 1.0), antialias=True)
    augmented = ImageFolder(photos, v2.Compose([crop, v2.RandomHorizontalFlip(), *after]))
    plain = ImageFolder(
        photos, v2.Compose([v2.Resize(SIDE, antialias=True), v2.CenterCrop(SIDE), *after])
    )
    rest = [i for i in range(len(plain)) if i not in chosen]
    loader = DataLoader(torch.utils.data.Subset(augmented, sorted(chosen)), 32, shuffle=True)
    optimizer = create_optimizer_v2(
        network, opt="adamw", lr=1e-3, weight_decay=0.05, layer_decay=0.75
    )
    steps = EPOCHS * len(loader)
    schedule = CosineLRScheduler(
        optimizer, steps, warmup_t=len(loader), warmup_lr_init=0.0, t_in_epochs=False
    )
    begin, step = time.perf_counter(), 0
    for _ in range(EPOCHS):
        network.train()
        for pixels, targets in loader:
            schedule.step_update(step)
            optimizer.zero_grad()
            cross_entropy(network(pixels), targets, label_smoothing=0.1).backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            step += 1
    network.eval()
    with torch.no_grad():
        batches = DataLoader(torch.utils.data.Subset(plain, rest), 64)
        right = [(network(x).argmax(1) == y).float() for x, y in batches]
    return {"accuracy": torch.cat(right).mean().item(), "seconds": time.perf_counter() - begin}


def run() -> None:
    """Train, print, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        photos = Path(folder)
        make_folder(given.photos, photos)
        for model in NETWORKS:
            untrained = model.partition(".")[0]
            for seed in range(given.seeds):
                random = ("--set", "pretrained=false")
                for way, result in {
                    "finetune": by_visprism(model, photos, seed),
                    "last layer": by_visprism(model, photos, seed, "--freeze", "body"),
                    "random weights": by_visprism(untrained, photos, seed, *random),
                    "timm": by_timm(model, photos, seed),
                }.items():
                    rows.append({"model": model, "way": way, "seed": seed, **result})
    for model in NETWORKS:
        for way in dict.fromkeys(row["way"] for row in rows):
            of = [row["accuracy"] for row in rows if (row["model"], row["way"]) == (model, way)]
            print(
                f"{model:24} {way:16} {np.mean(of):.1%} ({', '.join(f'{a:.1%}' for a in of)})"
            )
    if given.write:
        RESULTS.write_text(json.dumps({"epochs": EPOCHS, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    run()
