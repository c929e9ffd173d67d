"""The pretrained weights that ship inside the package, each made again from nothing.

Training is `visprism train` with the recipe and the seed that stand below, and a run that was
stopped is resumed. The weights are then rounded to 16 bits, evaluated on all test images before
and after, and written with their card, a JSON file of the same name.

    python benchmarks/trained.py resnet20.shapes
    python benchmarks/trained.py resnet20.cifar10 --data parquet:DIR    # train and test in DIR
    python benchmarks/trained.py resnet20.cifar10 --install --write     # into the package, and
                                                                        # results/trained/
    python benchmarks/trained.py resnet20.cifar10 --unfinished          # no training: the last
                                                                        # state of a run

On a CPU the two runs of a network are bit-identical with the same versions and machine.

Claim: none; these are the figures of docs/model_cards.md, with their 95% intervals.
"""

import os

# Attention of small heads trains 2 to 3 times faster on a CPU unfused; timm reads this once.
os.environ.setdefault("TIMM_FUSED_ATTN", "0")

import argparse
import csv
import hashlib
import io
import json
import platform
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import options

from visprism import LoadedModel, batches, load_data, load_model, read_metadata, save_checkpoint
from visprism.analyses.predictions.calibration import calibration
from visprism.cli import main as visprism
from visprism.core.provenance import Provenance
from visprism.core.statistics import wilson
from visprism.models.pretrained import PretrainedCard
from visprism.models.spec import ModelSpec
from visprism.passes.predict import predict
from visprism.training.recipe import flat_fields

RESULTS = Path(__file__).parent / "results" / "trained"
PACKAGE = Path(__file__).parents[1] / "src" / "visprism" / "models" / "weights"
SUBSET = 500  # test images, class-balanced, that a test of the package evaluates
ROUNDING = 0.002  # largest change of the accuracy by rounding to 16 bits
BATCH = 250  # images that are classified at once


@dataclass(frozen=True)
class Training:
    """How one network is made."""

    model: str  # as `visprism train` takes it
    recipe: str
    data: str
    changes: Mapping[str, str] = field(default_factory=dict)  # fields of the recipe


_HALF = {"precision": "bf16"}
NETWORKS = {
    "resnet20.shapes": Training("resnet20", "demo_resnet", "shapes"),
    "vit_pico_patch4_32.shapes": Training("vit_pico_patch4_32", "demo_vit", "shapes"),
    "resnet20.cifar10": Training(
        "resnet20?num_classes=10",
        "quick",
        "cifar10",
        _HALF | {"epochs": "12", "snapshot_every": "2"},
    ),
    "vit_nano_patch4_32.cifar10": Training(
        "vit_nano_patch4_32?num_classes=10",
        "quick",
        "cifar10",
        _HALF | {"epochs": "5", "snapshot_every": "2", "optimizer": "muon"},
    ),
    "alter_resnet20.cifar10": Training(
        "alter_resnet20?num_classes=10",
        "quick",
        "cifar10",
        _HALF | {"epochs": "4", "snapshot_every": "2", "optimizer": "muon"},
    ),
    "mixer_pico_patch4_32.cifar10": Training(
        "mixer_pico_patch4_32?num_classes=10",
        "quick",
        "cifar10",
        _HALF | {"epochs": "5", "snapshot_every": "2", "optimizer": "muon"},
    ),
    "pit_pico_patch4_32.cifar10": Training(
        "pit_pico_patch4_32?num_classes=10",
        "quick",
        "cifar10",
        _HALF | {"epochs": "4", "snapshot_every": "2", "optimizer": "muon"},
    ),
}
DESCRIPTIONS = {
    "shapes": "procedural images of ten shapes (docs/data.md)",
    "cifar10": "CIFAR-10 (Krizhevsky 2009)",
}
LICENSES = {
    "shapes": "images and weights: Apache-2.0, as visprism",
    "cifar10": "images: none stated by the authors of CIFAR-10; weights: Apache-2.0",
}


def main() -> None:
    parser = options(__doc__, threads=1)
    parser.add_argument("names", nargs="+", metavar="NAME", choices=[*NETWORKS, "all"])
    parser.add_argument("--data", metavar="DATA", help="where the data of NAME are")
    parser.add_argument("--runs", type=Path, default=Path("runs"), metavar="DIR")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="for weights and card (DIR/NAME)"
    )
    parser.add_argument("--install", action="store_true", help="into the package instead")
    parser.add_argument(
        "--unfinished", action="store_true", help="take the last state of a stopped run"
    )
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}/NAME.json")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    names = NETWORKS if "all" in arguments.names else arguments.names
    for name in names:
        run = arguments.runs / name
        if not arguments.unfinished:
            train(name, run, arguments.data)
        folder = PACKAGE if arguments.install else arguments.out or run / "weights"
        folder.mkdir(parents=True, exist_ok=True)
        card = package(name, run, folder, arguments)
        print(
            f"{name}: accuracy {card.accuracy:.2%} [{card.accuracy_low:.2%}, "
            f"{card.accuracy_high:.2%}], {card.epochs} epochs, {card.minutes:.1f} minutes"
        )


def train(name: str, run: Path, data: str | None) -> None:
    """Train a network, or resume its run."""
    how = NETWORKS[name]
    changes = [word for pair in how.changes.items() for word in ("--set", "=".join(pair))]
    named = ["--model", how.model, "--data", data or how.data, "--out", str(run), "--resume"]
    if code := visprism(["train", how.recipe, *named, *changes]):
        sys.exit(code)


def package(
    name: str, run: Path, folder: Path, arguments: argparse.Namespace
) -> PretrainedCard:
    """Write the 16-bit weights of a run and their card, from what the run left."""
    how = NETWORKS[name]
    source, history = weights_of(run)
    trained = load_model(f"{how.model}@{source}")
    stated = read_metadata(source)
    data = arguments.data or how.data
    exact = evaluate(trained, data)
    weights = folder / f"{name}.safetensors"
    last = history[-1]
    save_checkpoint(
        load_model(f"{how.model}@{source}").model.half(),
        weights,
        recipe=stated.recipe,
        preprocessing=trained.preprocessing,
        class_names=stated.class_names,
        metrics={"accuracy": exact["accuracy"]},
        provenance=Provenance(
            model=how.model,
            data=f"{how.data} (train)",
            images=train_images(stated.recipe, data),
            image_shape=(3, *trained.preprocessing.size),
            batch_size=stated.recipe["batch_size"],
            preprocessing=str(trained.preprocessing),
            precision=stated.recipe["precision"],
            seed=stated.recipe["seed"],
            command=f"python benchmarks/trained.py {name}",
            created=stated.provenance.created if stated.provenance else "",
        ),
    )
    rounded_model = load_model(f"{how.model}@{weights}")
    rounded = evaluate(rounded_model, data)
    if abs(rounded["accuracy"] - exact["accuracy"]) > ROUNDING:
        sys.exit(
            f"{name}: rounding to 16 bits changes the accuracy from {exact['accuracy']:.2%} to "
            f"{rounded['accuracy']:.2%}"
        )
    subset = evaluate(rounded_model, data, limit=SUBSET)
    low, high = wilson(np.array([rounded["correct"]]), np.array([rounded["images"]]))
    card = PretrainedCard(
        name=name,
        arguments=ModelSpec.parse(how.model).arguments,
        parameters=sum(p.numel() for p in trained.model.parameters()),
        data=how.data,
        data_description=DESCRIPTIONS[how.data] + storage(data),
        data_license=LICENSES[how.data],
        train_images=train_images(stated.recipe, data),
        recipe=how.recipe,
        recipe_changes=dict(how.changes),
        seed=stated.recipe["seed"],
        epochs=len(history),
        recipe_epochs=stated.recipe["epochs"],
        minutes=round(float(last["seconds"]) / 60, 2),
        machine=machine(),
        test_images=rounded["images"],
        accuracy=rounded["accuracy"],
        accuracy_low=round(float(low[0]), 6),
        accuracy_high=round(float(high[0]), 6),
        accuracy_fp32=exact["accuracy"],
        nll=rounded["nll"],
        ece=rounded["ece"],
        subset_images=subset["images"],
        subset_correct=subset["correct"],
        preprocessing=rounded_model.preprocessing,
        class_names=stated.class_names,
        sha256=hashlib.sha256(weights.read_bytes()).hexdigest(),
        created=datetime.now(UTC).date().isoformat(),
        versions=versions(),
    )
    write_json(folder / f"{name}.json", asdict(card))
    if arguments.write:
        RESULTS.mkdir(parents=True, exist_ok=True)
        curves = {
            key: [float(row[key]) for row in history]
            for key in ("seconds", "train_loss", "images_per_second")
        } | {
            key: [float(row[key]) for row in history if row[key] != "nan"]
            for key in ("test_accuracy", "test_nll", "test_ece")
        }
        write_json(RESULTS / f"{name}.json", {**asdict(card), "by_epoch": curves})
    return card


def evaluate(network: LoadedModel, data: str, limit: int | None = None) -> dict[str, Any]:
    """Accuracy, NLL and ECE on the test images."""
    images = load_data(data, split="test", limit=limit, seed=0)
    test_batches = batches(images, network.preprocessing, BATCH)
    measured = calibration(predict(network.model, test_batches))
    accuracy = float(measured.accuracy)
    return {
        "images": len(images),
        "accuracy": round(accuracy, 6),
        "correct": round(accuracy * len(images)),
        "nll": round(float(measured.nll), 6),
        "ece": round(float(measured.ece), 6),
    }


def train_images(recipe: Mapping[str, Any], data: str) -> int:
    """How many images were seen in an epoch."""
    return flat_fields(recipe)["limit"] or len(load_data(data, split="train"))


def storage(data: str) -> str:
    """How the images of a Parquet file were compressed, if with loss; else nothing."""
    source, _, place = data.partition(":")
    if source != "parquet":
        return ""
    from PIL import Image
    from pyarrow.parquet import ParquetFile

    file = next(Path(place).rglob("train*.parquet"))
    row = ParquetFile(file).read_row_group(0).slice(0, 1).to_pylist()[0]
    cell = next(value for value in row.values() if isinstance(value, dict))
    image = Image.open(io.BytesIO(cell["bytes"]))
    if image.format != "JPEG":
        return ""
    return f"; a copy whose images were compressed as JPEG of quality {quality(image)}"


def quality(image: Any) -> int:
    """The quality of a JPEG image in libjpeg's scale, by its luminance table.

    libjpeg scales the table of the standard (ITU T.81, table K.1), whose entries sum to 3,692,
    by 200 - 2 quality percent above quality 50 and 5000 / quality percent below.
    """
    percent = 100 * sum(image.quantization[0]) / 3692
    return round(100 - percent / 2 if percent <= 100 else 5000 / percent)


def weights_of(run: Path) -> tuple[Path, list[dict[str, str]]]:
    """The final weights of a run, and the epochs that led to them.

    Of a stopped run: those after its last epoch, if that one is the best, so that nothing is
    selected by the test images, or the last snapshot.
    """
    history = history_of(run)
    if (run / "model.safetensors").is_file():
        return run / "model.safetensors", history
    accuracies = [float(row["test_accuracy"]) for row in history]
    if accuracies[-1] > max([0.0, *accuracies[:-1]]):
        return run / "best.safetensors", history
    snapshot = max((run / "snapshots").glob("step-*.safetensors"))
    step = int(snapshot.stem.partition("-")[2])
    return snapshot, [row for row in history if int(row["step"]) <= step]


def history_of(run: Path) -> list[dict[str, str]]:
    """A row for each completed epoch, by the names of columns without units."""
    with (run / "history.csv").open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        return [{name.partition(" (")[0]: row[name] for name in row} for row in rows]


def machine() -> str:
    """The kind of machine."""
    capability = torch.backends.cpu.get_cpu_capability()
    threads = torch.get_num_threads()
    return (
        f"{threads} of {os.cpu_count()} cores of an {platform.machine()} CPU with {capability}"
    )


def versions() -> dict[str, str]:
    """Versions of everything that the numbers depend on."""
    names = ("visprism", "torch", "timm")
    return {name: version(name) for name in names} | {"python": platform.python_version()}


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
