"""The catalog of the zoo, which `visprism models` prints: description, parameters and MACs.

    python benchmarks/zoo_catalog.py            # prints a line for each network
    python benchmarks/zoo_catalog.py --write    # and writes src/visprism/models/catalog.csv

Networks are built with their default options on torch's meta device and counted without any
arithmetic. A test compares the file with the networks.
"""

import argparse
import csv
import io
from dataclasses import asdict, fields
from pathlib import Path

import torch

from visprism import MODELS
from visprism.anatomy.trace.operation_counter import MacCounter
from visprism.cli.catalog import CATALOG, ZooEntry
from visprism.core.files import write_text
from visprism.models.zoo_registry import image_size

FILE = Path(__file__).parent.parent / "src" / "visprism" / "models" / CATALOG


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help=f"write {FILE.name}")
    arguments = parser.parse_args()
    text = io.StringIO()
    writer = csv.DictWriter(
        text, [field.name for field in fields(ZooEntry)], lineterminator="\n"
    )
    writer.writeheader()
    for name in MODELS:
        entry = entry_of(name)
        print(f"{name:<36}{entry.parameters:>13,}{entry.macs:>17,}", flush=True)
        writer.writerow(asdict(entry))
    if arguments.write:
        write_text(FILE, text.getvalue())
        print(f"wrote {FILE}")


def entry_of(name: str) -> ZooEntry:
    """What the catalog should state of a network."""
    side = image_size(name)
    with torch.device("meta"):
        model = MODELS[name]().eval()
        with MacCounter() as counter:
            model(torch.zeros(1, 3, side, side))
    parameters = sum(p.numel() for p in model.parameters())
    description = (MODELS[name].__doc__ or "").strip().partition("\n")[0]
    return ZooEntry(name, description, parameters, counter.macs, side)


if __name__ == "__main__":
    main()
