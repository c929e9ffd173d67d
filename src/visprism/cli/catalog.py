"""``visprism models``, ``data`` and ``anatomy``: what there is, and what models consist of."""

import csv
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from visprism.cli.arguments import (
    DATA,
    MODEL,
    REQUIRED,
    WEIGHTS,
    Printing,
    argument,
)
from visprism.cli.output import columns, print_json, print_table
from visprism.core.errors import InputError
from visprism.core.request import Sized, Weights

CATALOG = "catalog.csv"  # in visprism/models, written by benchmarks/zoo_catalog.py


@dataclass(frozen=True)
class ZooEntry:
    """What the catalog states of a network of the zoo; counts are for its default size."""

    name: str
    description: str
    parameters: int
    macs: int  # multiply-accumulates of one image
    img_size: int  # pixels


@dataclass(frozen=True, kw_only=True)
class Models(Printing):
    """List available models; with --cost, measure parameters, MACs and throughput."""

    group, epilog = "models and data", f"{MODEL}\n{WEIGHTS}"
    pattern: str | None = argument(
        None,
        "part of a name, such as a family (resnet), or a pattern such as '*vit*' (default: "
        "list the zoo)",
        "PATTERN",
        positional=True,
    )
    cost: bool = argument(
        False, "measure parameters, MACs per image and images per second (default: list only)"
    )
    trained: bool = argument(
        False,
        "list networks with weights inside the package: accuracy, recipe, data (default: list "
        "all)",
    )
    batch_size: int = argument(8, "images per forward pass of --cost", minimum=1)

    def run(self) -> None:
        """List the zoo, or every name of any source that matches, or what they cost."""
        if self.cost and self.trained:
            raise InputError("--cost must not be given with --trained.")
        if self.trained:
            self._list_trained()
        elif self.cost:
            self._measure()
        else:
            self._list()

    def _list_trained(self) -> None:
        from visprism.models.pretrained import card_table, matching_cards

        if self.json:
            print_json([asdict(card) for card in matching_cards(self.pattern)])
        else:
            print(columns(*card_table(self.pattern)))

    def _list(self) -> None:
        rows = _zoo_rows(self.pattern)
        if self.pattern is not None:
            elsewhere = _elsewhere(self.pattern)
            rows += [(name, None, None, name.partition(":")[0], []) for name in elsewhere]
        _require(rows, self.pattern)
        header = ["model", "parameters", "MACs", "source", "weights included"]
        print_table(header, rows, as_json=self.json)
        if not self.json:
            print(
                "\nMACs are for one image. --cost measures models of timm and torchvision too."
                "\n`visprism models PATTERN` searches the zoo, timm and torchvision."
            )

    def _measure(self) -> None:
        """A line for each model, as soon as it has been measured."""
        import torch

        names = self._costed()
        if self.json:
            costs = map(self._cost, names)
            print_json([{**cost, "image": list(cost["image"])} for cost in costs])
            return
        width = max(map(len, names))
        print(f"{'model':<{width}}  {'image':>9}  {'parameters':>11}  {'MACs':>14}  images/s")
        for cost in map(self._cost, names):
            image = "x".join(map(str, cost["image"]))
            print(
                f"{cost['model']:<{width}}  {image:>9}  {cost['parameters']:>11,}  "
                f"{cost['macs']:>14,}  {cost['images_per_second']:>8.1f}",
                flush=True,
            )
        threads = torch.get_num_threads()
        print(
            f"MACs of one image; speed of batches of {self.batch_size} in fp32 on "
            f"{threads} thread{'s' if threads > 1 else ''} of this CPU"
        )

    def _costed(self) -> list[str]:
        """The zoo, the network of it that has exactly this name, or all names that match."""
        zoo = list(read_catalog())
        if self.pattern is None:
            return zoo
        if self.pattern in zoo:
            return [self.pattern]
        names = [name for name in zoo if _matches(name, self.pattern)]
        return _require(names + _elsewhere(self.pattern), self.pattern)

    def _cost(self, name: str) -> dict[str, Any]:
        import torch

        from visprism.anatomy.trace.operation_counter import MacCounter
        from visprism.models.loading import load_model

        loaded = load_model(name, pretrained=False)
        model, size = loaded.model, loaded.preprocessing.size
        images = torch.zeros(self.batch_size, 3, *size)
        times = []
        with torch.no_grad():
            with MacCounter() as counter:  # and the model warms up
                model(images[:1])
            for _ in range(3):
                start = time.perf_counter()
                model(images)
                times.append(time.perf_counter() - start)
        return {
            "model": name,
            "image": size,
            "parameters": sum(p.numel() for p in model.parameters()),
            "macs": counter.macs,
            "images_per_second": len(images) / median(times),
        }


def _require(names: list[Any], pattern: str | None) -> list[Any]:
    if not names:
        raise InputError(
            f"pattern must match a model of the zoo, timm or torchvision, got {pattern!r}"
        )
    return names


def read_catalog() -> dict[str, ZooEntry]:
    """The networks of the zoo by name; read from a file, for building them takes a minute."""
    counts = ("parameters", "macs", "img_size")
    with (_models_folder() / CATALOG).open(newline="", encoding="utf-8") as file:
        return {
            row["name"]: ZooEntry(
                row["name"], row["description"], *(int(row[count]) for count in counts)
            )
            for row in csv.DictReader(file)
        }


def _models_folder() -> Path:
    spec = find_spec("visprism.models")  # which is not imported: it needs torch
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0])


def _zoo_rows(pattern: str | None) -> list[tuple[Any, ...]]:
    """A row for each network of the zoo and of plug-ins that matches, trained ones first."""
    catalog = read_catalog()
    names = list(catalog)
    if entry_points(group="visprism.plugins"):
        from visprism.models.zoo_registry import MODELS

        names += [name for name in MODELS if name not in catalog]
    tags: dict[str, list[str]] = {}
    for path in sorted((_models_folder() / "weights").glob("*.json")):
        name, _, tag = path.stem.partition(".")
        tags.setdefault(name, []).append(tag)
    rows: list[tuple[Any, ...]] = []
    for name in names:
        if pattern is None or _matches(name, pattern):
            entry = catalog.get(name)
            cost = (None, None) if entry is None else (entry.parameters, entry.macs)
            rows.append((name, *cost, "zoo", tags.get(name, [])))
    return sorted(rows, key=lambda row: not row[-1])


def _elsewhere(pattern: str) -> list[str]:
    """Names of timm and torchvision that match, with their source or without."""
    from visprism.models.sources import names_elsewhere

    names = ((name, name.rpartition(":")[2]) for name in names_elsewhere())
    return [name for name, bare in names if _matches(name, pattern) or _matches(bare, pattern)]


def _matches(name: str, text: str) -> bool:
    """Whether a name matches a pattern; a text without wildcards matches any part of a name."""
    pattern = text if set("*?[") & set(text) else f"*{text}*"
    return fnmatch(name.lower(), pattern.lower())


@dataclass(frozen=True, kw_only=True)
class Data(Printing):
    """List available data sets."""

    group, epilog = "models and data", DATA

    def run(self) -> None:
        """List the registered data sets, also of plug-ins, and how to name them."""
        from visprism.images.image_set import DATA as REGISTERED

        print_table(["data", "description"], described(REGISTERED), as_json=self.json)
        if not self.json:
            print(f"\n{DATA}", end="")


def described(registry: Mapping[str, Callable]) -> Iterator[tuple[str, str]]:
    """Each name, and the first line of what is registered under it."""
    for name, function in registry.items():
        yield name, (function.__doc__ or "").strip().partition("\n")[0]


@dataclass(frozen=True, kw_only=True)
class Anatomy(Printing, Sized, Weights):
    """Blocks of a model: kind, stage, output, cost."""

    group, epilog = "models and data", MODEL
    model: str = argument(REQUIRED, "model, see below", "MODEL", positional=True)
    out: Path | None = argument(
        None, "folder for the table and a figure (default: print only)", "DIR"
    )
    pretrained: bool | None = argument(
        False,
        "load published weights, which are downloaded (default: random weights, of which the "
        "numbers are the same)",
        opposite=("random-weights", "load random weights (default: see --pretrained)"),
    )

    def run(self) -> None:
        """Print a model's blocks; draw them if a folder is named."""
        import torch

        from visprism.anatomy.blocks.anatomy import costs
        from visprism.core.files import output_folder, slug
        from visprism.core.run import stream
        from visprism.drawing.panel import panel
        from visprism.drawing.save import save_figure
        from visprism.kit.model_on_images import dissected_on
        from visprism.models.loading import load_model

        loaded = load_model(self.model, pretrained=self.pretrained, seed=self.seed)
        size = self.size or loaded.preprocessing.size
        noise = torch.randn(2, 3, *size, generator=stream(self.seed, "noise"))
        blocks = dissected_on(loaded.model, noise, name=loaded.name)
        table = costs(blocks).with_provenance(model=loaded.name)
        if self.json:
            print_json(_as_json(table, loaded.name, size))
        else:
            _print_blocks(table, loaded.name, size)
        if self.out:
            with output_folder(self.out) as place:
                stem = f"{slug(loaded.label)}-anatomy"
                table.save(place / f"{stem}.npz")
                table.save_csv(place / f"{stem}.csv")
                save_figure(panel({loaded.label: table}), place / stem)


def _as_json(table: Any, name: str, size: Sequence[int]) -> dict[str, Any]:
    import numpy as np

    by_block = {
        key: column
        for key, column in table.columns().items()
        if np.ndim(getattr(table, key)) or key == "stream"
    }
    return {
        "model": name,
        "image": list(size),
        "parameters": int(table.distinct_parameters),
        "macs": int(table.macs.sum()),
        "blocks": [
            {key: values[i].item() for key, values in by_block.items()}
            for i in range(len(table))
        ],
    }


def _print_blocks(table: Any, name: str, size: Sequence[int]) -> None:
    from visprism.report.tables import amount

    sides = zip(table.channels, table.height, table.width, strict=True)
    streams = table.columns()["stream"]
    table_columns: dict[str, Iterable[str]] = {
        "block": table.block.tolist(),
        "kind": table.kind.tolist(),
    }
    if streams.any():
        table_columns["stream"] = map(str, streams.tolist())
    table_columns["stage"] = map(str, table.stage.tolist())
    table_columns["output"] = ("x".join(str(int(n)) for n in row if n) for row in sides)
    table_columns["parameters"] = map(amount, table.parameters.tolist())
    table_columns["MACs"] = map(amount, table.macs.tolist())
    print(name)
    print_table(list(table_columns), zip(*table_columns.values(), strict=True))
    print(
        f"{len(table)} blocks, {amount(table.distinct_parameters)} parameters, "
        f"{amount(table.macs.sum().item())} MACs per {size[0]}x{size[1]} image"
    )
