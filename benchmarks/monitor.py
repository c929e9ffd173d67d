"""The time that a monitor takes from a training, and the alarms of healthy recipes.

A ResNet-18 and a ViT-Ti are trained on 32x32 images in a plain loop with the analyses that a
monitor has by default and `share` 0.02. The share is read after each measurement and at the
end. Small networks are trained by shipped recipes, and the alarms of each step are counted.

    python benchmarks/monitor.py                                 # prints the table
    python benchmarks/monitor.py overhead --write --minutes 15   # and results/monitor.json
    python benchmarks/monitor.py snapshots --runs DIR... --data DATA --out STUDIES --write

`snapshots` checks the conditions of the alarms after each epoch of the runs of the study of
claims, which were trained longer, on CIFAR-10.

Claims: no healthy recipe has an alarm; from the first measurement on, the share is at most a
tenth above 2%.
"""

import argparse
import json
import platform
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import timm
import torch
from harness import options
from torch.nn.functional import cross_entropy

import visprism as vp
from visprism.core.provenance import revision
from visprism.study.alarms import alarms_of

RESULTS = Path(__file__).parent / "results" / "monitor.json"
SHARE, EVERY, BATCH = 0.02, 5, 32
IMAGES = 1024  # of the training of each recipe
NETWORKS: dict[str, dict[str, Any]] = {
    "ResNet-18": {"model_name": "resnet18"},
    "ViT-Ti": {"model_name": "vit_tiny_patch16_224", "img_size": 32, "patch_size": 4},
}
RECIPES = {
    "demo_resnet": "resnet20",
    "demo_vit": "vit_pico_patch4_32",
    "quick": "alter_resnet20",
}


def main() -> None:
    parser = options(__doc__, RESULTS)
    parser.add_argument("parts", nargs="*", help="of overhead, alarms and snapshots")
    parser.add_argument("--runs", nargs="+", type=Path)
    parser.add_argument("--data", help="of snapshots; their test images are measured")
    parser.add_argument("--out", type=Path, help="of the studies of snapshots; resumes")
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--images", type=int, default=256, help="of each measurement")
    parser.add_argument("--minutes", type=float, default=5.0, help="of each network")
    parser.add_argument("--epochs", type=int, default=3, help="of each recipe")
    arguments = parser.parse_args()
    about = {
        "machine": platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
        "versions": {name: version(name) for name in ("visprism", "torch", "timm")},
        "revision": revision(),
        "date": datetime.now(UTC).date().isoformat(),
    }
    measure = {
        "overhead": lambda: {n: overhead(n, arguments) for n in arguments.networks},
        "alarms": lambda: {n: alarms(n, m, arguments.epochs) for n, m in RECIPES.items()},
    }
    if arguments.runs:
        measure["snapshots"] = lambda: dict(snapshots(arguments))
    for part in arguments.parts or measure:
        found = {name: of | about for name, of in measure[part]().items()}
        if arguments.write:
            stored = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
            stored[part] = stored.get(part, {}) | found
            text = json.dumps(stored, indent=1)
            RESULTS.write_text(f"{text}\n", encoding="utf-8")


def overhead(name: str, arguments: argparse.Namespace) -> dict[str, object]:
    """Seconds of measurements and of a training of so many minutes."""
    torch.manual_seed(0)
    model = timm.create_model(**NETWORKS[name], num_classes=10).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = vp.load_data("shapes", limit=512)
    way = vp.Preprocessing((32, 32), mean=(0.5,) * 3, std=(0.25,) * 3)
    batches = list(vp.batches(data, way, BATCH))
    number = arguments.images
    watched = list(vp.batches(data, way, min(BATCH, number)))[: -(-number // BATCH)]
    monitor = vp.Monitor(watched, every=EVERY, share=SHARE)
    begin, step, rows = time.perf_counter(), 0, []
    while time.perf_counter() - begin < 60 * arguments.minutes:
        images, targets = batches[step % len(batches)]
        optimizer.zero_grad()
        cross_entropy(model(images), targets).backward()
        optimizer.step()
        step += 1
        before = monitor.seconds
        if study := monitor.step(model, step, optimizer):
            elapsed = time.perf_counter() - begin
            rows.append(
                {
                    "step": step,
                    "analyses": study.analyses,
                    "took": monitor.seconds - before,
                    "share": monitor.seconds / elapsed,
                }
            )
    elapsed = time.perf_counter() - begin
    print(
        f"{name}: {step} updates in {elapsed:.0f} s, {len(rows)} measurements, "
        f"{monitor.seconds / elapsed:.2%} of the time, at most "
        f"{max(row['share'] for row in rows):.2%} after one",
        flush=True,
    )
    return {
        "images": arguments.images,
        "seconds": elapsed,
        "updates": step,
        "measurements": rows,
        "share": monitor.seconds / elapsed,
    }


def alarms(recipe: str, model: str, epochs: int) -> dict[str, object]:
    """The alarms of a healthy training, by step."""
    changed = vp.load_recipe(recipe).replace(epochs=epochs, limit=IMAGES, precision="fp32")
    found: dict[int, list[str]] = {}
    with TemporaryDirectory() as folder:
        job = vp.Job(model, "shapes", Path(folder), test_limit=256, logs=())

        def watch(prepared, images, loggers):  # noqa: ANN001
            monitor = vp.Monitor(
                images,
                every=max(1, IMAGES // changed.batch_size // 2),
                share=1.0,
                preprocessing=prepared.preprocessing,
            )
            monitors.append(monitor)
            return monitor

        monitors: list[vp.Monitor] = []
        history = vp.train(job, changed, watch=watch)
    for step, study in monitors[0].studies.items():
        found[step] = study.header["alarms"]
    raised = [text for texts in found.values() for text in texts]
    accuracy = float(history.test_accuracy[-1])
    print(
        f"{recipe}, {model}: accuracy {accuracy:.0%}, {len(found)} measurements, "
        f"{len(raised)} alarms {raised[:2]}",
        flush=True,
    )
    return {"model": model, "accuracy": accuracy, "measured": sorted(found), "alarms": raised}


def snapshots(arguments: argparse.Namespace) -> Iterator[tuple[str, dict[str, object]]]:
    """The alarms of healthy runs, after each epoch."""
    for run in arguments.runs:
        vp.evolve(run, arguments.data, limit=arguments.images, split="test", out=arguments.out)
        folders = sorted((arguments.out / run.name).glob("step-*"))
        studies = [vp.Study.load(folder) for folder in folders]
        raised = [str(a) for n in range(len(studies)) for a in alarms_of(studies[: n + 1])]
        accuracy = studies[-1].glance()[0].cells[studies[-1].models[0]]
        print(f"{run.name}: accuracy {accuracy}, {len(studies)} epochs, {raised}", flush=True)
        yield (
            run.name,
            {"accuracy": accuracy, "images": arguments.images, "measured": len(studies)}
            | {"alarms": raised},
        )


if __name__ == "__main__":
    main()
