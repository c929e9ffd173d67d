"""What every network of the zoo costs: parameters, multiply-accumulates, images a second.

    python benchmarks/zoo.py                    # prints a row for each network and size
    python benchmarks/zoo.py --write            # and writes results/zoo.json and the document
    python benchmarks/zoo.py --repeats 0 ...    # counts alone: a minute, on torch's meta device
    python benchmarks/zoo.py 'alter_*' --write  # those that fit; the stored rows of others stay

The number of classes is the literature's, 100 for images of 32x32 and 1000 for 224x224. Speed
is the median over passes of one batch in fp32, without gradients, after one that warms up, by
the processor's time on one thread; with it the whole zoo takes half an hour.

Claim: none; it is the table of docs/models.md.
"""

import argparse
import json
import re
from collections.abc import Iterable
from contextlib import nullcontext
from fnmatch import fnmatch
from pathlib import Path

import torch
from harness import in_turns, made_with, medians, write
from torch import Tensor, nn

from visprism import MODELS
from visprism.anatomy.trace.operation_counter import MacCounter
from visprism.models.zoo_registry import image_size

RESULTS = Path(__file__).parent / "results" / "zoo.json"
DOCUMENT = Path(__file__).parent.parent / "docs" / "models.md"
CLASSES = {32: 100, 224: 1000}
BATCH = {32: 16, 224: 4}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("patterns", nargs="*", default=["*"], help="of names, as 'alter_*'")
    parser.add_argument("--repeats", type=int, default=3, help="0: counts alone")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}, the table")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    chosen = [n for n in MODELS if any(fnmatch(n, p) for p in arguments.patterns)]
    for name in chosen:
        rows.append(row := measured(name, arguments.repeats))
        print(
            f"{name:<36}{row['parameters']:>13,}{row['macs']:>17,}{speed(row):>9}", flush=True
        )
    if arguments.write:
        stored = json.loads(RESULTS.read_text("utf-8"))["rows"] if RESULTS.is_file() else []
        by_name = {row["name"]: row for row in (*stored, *rows)}
        rows = [by_name[name] for name in MODELS if name in by_name]
        write(RESULTS, setting(arguments), rows)
        before, _, after = DOCUMENT.read_text("utf-8").partition("| network |")
        rest = re.sub(r"^.*?\n\n", "", after, count=1, flags=re.DOTALL)
        DOCUMENT.write_text(f"{before}{table(rows)}\n{rest}", "utf-8")
        print(f"wrote {RESULTS} and {DOCUMENT}")


def measured(name: str, repeats: int) -> dict:
    side = image_size(name)
    with nullcontext() if repeats else torch.device("meta"):
        model = MODELS[name](num_classes=CLASSES[side]).eval()
        images = torch.zeros(BATCH[side], 3, side, side)
        with torch.no_grad(), MacCounter() as counter:
            model(images[:1])
    speed = len(images) / seconds(model, images, repeats) if repeats else None
    return {
        "name": name,
        "img_size": side,
        "parameters": sum(p.numel() for p in model.parameters()),
        "macs": counter.macs,
        "images_per_second": speed,
    }


@torch.no_grad()
def seconds(model: nn.Module, images: Tensor, repeats: int) -> float:
    """The processor's time for a pass of all images."""
    return medians(in_turns({"pass": lambda: model(images)}, repeats))["pass"]


def table(rows: Iterable[dict]) -> str:
    """Both sizes of a network in one line, in Markdown."""
    pairs: dict[str, dict[int, dict]] = {}
    for row in rows:
        stem = row["name"].removesuffix(f"_{row['img_size']}")
        pairs.setdefault(stem, {})[row["img_size"]] = row
    sizes = " | ".join(f"parameters, {side} | GMACs | images/s" for side in CLASSES)
    lines = [f"| network | {sizes} |", "|---|" + "--:|" * 3 * len(CLASSES)]
    for stem, sides in pairs.items():
        cells = [cell for side in CLASSES for cell in cells_of(sides.get(side))]
        lines.append(f"| `{stem}` | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def cells_of(row: dict | None) -> list[str]:
    if row is None:
        return ["", "", ""]
    return [f"{row['parameters']:,}", f"{row['macs'] / 1e9:.3g}", speed(row)]


def speed(row: dict) -> str:
    speed_of_model = row["images_per_second"]
    return "" if speed_of_model is None else f"{speed_of_model:.3g}"


def setting(arguments: argparse.Namespace) -> dict:
    """Where the numbers are from."""
    return made_with(
        "timm",
        clock="time.process_time",
        precision="fp32",
        batch=BATCH,
        classes=CLASSES,
        repeats=arguments.repeats,
    )


if __name__ == "__main__":
    main()
