"""``visprism models`` and ``visprism data``: what is available."""

import csv
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from visprism.cli.options import DATA, json_option
from visprism.cli.output import columns, print_json, records
from visprism.cli.values import positive
from visprism.core.errors import InputError

CATALOG = "catalog.csv"  # in visprism/models, written by benchmarks/zoo_catalog.py


@dataclass(frozen=True)
class ZooEntry:
    """What the catalog states of a network of the zoo; counts are those of its default size."""

    name: str
    description: str
    parameters: int
    macs: int  # multiply-accumulates of one image
    img_size: int  # pixels


def models(arguments: Namespace) -> None:
    """List the zoo, or every name of any source that matches, or what they cost."""
    if arguments.trained:
        from visprism.models.pretrained import card_table, matching_cards

        if arguments.json:
            print_json([asdict(card) for card in matching_cards(arguments.pattern)])
        else:
            print(columns(*card_table(arguments.pattern)))
        return
    if arguments.cost:
        names = _costed(arguments.pattern)
        if arguments.json:
            print_json([asdict(cost) for cost in _costs(names, arguments.batch_size)])
        else:
            _print_costs(names, arguments.batch_size)
        return
    rows = _zoo_rows(arguments.pattern)
    if arguments.pattern is not None:
        rows += [
            (name, None, None, _source(name), []) for name in _elsewhere(arguments.pattern)
        ]
    if not rows:
        raise InputError(
            f"pattern must match a model of the zoo, timm or torchvision, got "
            f"{arguments.pattern!r}"
        )
    header = ["model", "parameters", "MACs", "source", "weights included"]
    if arguments.json:
        print_json(records(header, rows))
        return
    print(columns(header, map(_texts, rows)))
    print(
        "\nMACs are those of one image; --cost measures those of timm and torchvision.\n"
        "`visprism models PATTERN` searches the zoo, timm and torchvision."
    )


def _texts(row: Sequence[Any]) -> list[str]:
    """A row of the table: numbers with separators, and a dash for what is not there."""
    name, parameters, macs, source, tags = row
    counts = ("-" if count is None else f"{count:,}" for count in (parameters, macs))
    return [name, *counts, source, ", ".join(tags) or "-"]


def read_catalog() -> dict[str, ZooEntry]:
    """The networks of the zoo by name; read from a file, for building them takes a minute."""
    with (_models_folder() / CATALOG).open(newline="", encoding="utf-8") as file:
        return {
            row["name"]: ZooEntry(
                row["name"],
                row["description"],
                int(row["parameters"]),
                int(row["macs"]),
                int(row["img_size"]),
            )
            for row in csv.DictReader(file)
        }


def _models_folder() -> Path:
    spec = find_spec("visprism.models")  # which is not imported: it needs torch
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0])


def _zoo_rows(pattern: str | None) -> list[tuple[Any, ...]]:
    """A row for each network of the zoo and of plug-ins that matches."""
    catalog = read_catalog()
    names = list(catalog)
    if entry_points(group="visprism.plugins"):
        from visprism.models import MODELS

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
    return rows


def _elsewhere(pattern: str) -> list[str]:
    """Names of timm and torchvision that match."""
    from visprism.models.sources import names_elsewhere

    return [
        name
        for name in names_elsewhere()
        if _matches(name, pattern) or _matches(name.rpartition(":")[2], pattern)
    ]


def _matches(name: str, text: str) -> bool:
    """Whether a name matches a pattern; a text without wildcards matches any part of a name."""
    pattern = text if set("*?[") & set(text) else f"*{text}*"
    return fnmatch(name.lower(), pattern.lower())


def _source(name: str) -> str:
    return name.partition(":")[0]


def _costed(pattern: str | None) -> list[str]:
    """The zoo, the network of it that has exactly this name, or all names that match."""
    zoo = list(read_catalog())
    if pattern is None:
        return zoo
    if pattern in zoo:
        return [pattern]
    names = [name for name in zoo if _matches(name, pattern)] + _elsewhere(pattern)
    if not names:
        raise InputError(
            f"pattern must match a model of the zoo, timm or torchvision, got {pattern!r}"
        )
    return names


@dataclass(frozen=True)
class MeasuredCost:
    """What one model costs on this machine."""

    model: str
    image: tuple[int, int]  # (height, width), in pixels
    parameters: int
    macs: int  # multiply-accumulates of one image
    images_per_second: float


def _costs(names: Sequence[str], batch_size: int) -> Iterator[MeasuredCost]:
    """The cost of each model, measured when it is read."""
    import torch

    from visprism.measure.throughput import model_cost
    from visprism.models import load_model

    for name in names:
        loaded = load_model(name, pretrained=False)
        size = loaded.preprocessing.size
        cost = model_cost(loaded.model, torch.zeros(batch_size, 3, *size))
        yield MeasuredCost(name, size, cost.parameters, cost.macs, cost.images_per_second)


def _print_costs(names: Sequence[str], batch_size: int) -> None:
    """A line for each model, as soon as it has been measured."""
    import torch

    width = max(map(len, names))
    print(
        f"{'model':<{width}}  {'image':>9}  {'parameters':>11}  {'MACs':>14}  {'images/s':>8}"
    )
    for cost in _costs(names, batch_size):
        image = "x".join(map(str, cost.image))
        print(
            f"{cost.model:<{width}}  {image:>9}  {cost.parameters:>11,}  {cost.macs:>14,}  "
            f"{cost.images_per_second:>8.1f}",
            flush=True,
        )
    threads = torch.get_num_threads()
    print(
        f"MACs of one image; speed of batches of {batch_size} in fp32 on "
        f"{threads} thread{'s' if threads > 1 else ''} of this CPU"
    )


def data(arguments: Namespace) -> None:
    """List the registered data sets, those of plug-ins too, and how they are named."""
    from visprism.data import DATA as REGISTERED

    header, rows = ["data", "description"], described(REGISTERED)
    if arguments.json:
        print_json(records(header, rows))
        return
    print(columns(header, rows))
    print(f"\n{DATA}", end="")


def described(registry: Mapping[str, Callable]) -> Iterable[tuple[str, str]]:
    """Each name, and the first line of what is registered under it."""
    for name, function in registry.items():
        yield name, (function.__doc__ or "").strip().partition("\n")[0]


def add_models(to: ArgumentParser) -> None:
    """The arguments of ``models``."""
    to.add_argument(
        "pattern",
        nargs="?",
        metavar="PATTERN",
        help="part of a name, such as a family (resnet), or a pattern such as '*vit*' "
        "(default: list the zoo)",
    )
    tables = to.add_mutually_exclusive_group()
    tables.add_argument(
        "--cost",
        action="store_true",
        help="measure parameters, MACs per image and images per second (default: list only)",
    )
    tables.add_argument(
        "--trained",
        action="store_true",
        help="list networks with weights inside the package: accuracy, recipe, data "
        "(default: list all)",
    )
    to.add_argument(
        "--batch-size",
        type=positive,
        default=8,
        metavar="N",
        help="images per forward pass of --cost (default: 8)",
    )
    json_option(to)
    to.set_defaults(run=models)


def add_data(to: ArgumentParser) -> None:
    """The arguments of ``data``."""
    json_option(to)
    to.set_defaults(run=data)
