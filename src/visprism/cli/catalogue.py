"""``visprism models`` and ``visprism data``: what can be named."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatch

from visprism.cli.naming import DATA, MODEL, WEIGHTS
from visprism.cli.text import columns
from visprism.cli.values import positive
from visprism.core.errors import InputError


def models(arguments: Namespace) -> None:
    """List the zoo, or every name of any source that fits a pattern, or what they cost."""
    from visprism.models import MODELS

    if arguments.trained:
        from visprism.models.pretrained import card_table

        print(columns(*card_table(arguments.pattern)))
        return
    if arguments.cost:
        names = _costed(arguments.pattern)
        _print_costs(names, arguments.batch_size)
        return
    if arguments.pattern is None:
        print(columns(["model of the zoo", "what it is"], described(MODELS)))
        print(f"\n{MODEL}\n{WEIGHTS}")
        print("`visprism models PATTERN` searches timm and torchvision too.")
        return
    print("\n".join(_found(arguments.pattern)))


def _costed(pattern: str | None) -> list[str]:
    """The zoo, the one network of it that has just this name, or all names that fit."""
    from visprism.models import MODELS

    if pattern is None:
        return list(MODELS)
    return [pattern] if pattern in set(MODELS) else _found(pattern)


def _found(text: str) -> list[str]:
    """Names of any source that fit a pattern, in capitals or not.

    A text without wildcards matches any part of a name.

    Raises:
        InputError: if there is none.
    """
    from visprism.models import MODELS
    from visprism.models.sources import names_elsewhere

    pattern = (text if set("*?[") & set(text) else f"*{text}*").lower()
    names = [*MODELS, *names_elsewhere()]
    found = [
        name
        for name in names
        if any(fnmatch(n.lower(), pattern) for n in (name, name.rpartition(":")[2]))
    ]
    if not found:
        raise InputError(f"no model of the zoo, timm or torchvision fits {text!r}")
    return found


def _print_costs(names: Sequence[str], batch_size: int) -> None:
    """A line for each model, as soon as it has been measured."""
    import torch

    from visprism.measure.throughput import model_cost
    from visprism.models import load_model

    wide = max(map(len, names))
    print(f"{'model':<{wide}}  {'image':>9}  {'parameters':>11}  {'MACs':>14}  {'images/s':>8}")
    for name in names:
        loaded = load_model(name)
        height, width = loaded.preprocessing.size
        cost = model_cost(loaded.model, torch.zeros(batch_size, 3, height, width))
        print(
            f"{name:<{wide}}  {f'{height}x{width}':>9}  {cost.parameters:>11,}  "
            f"{cost.macs:>14,}  {cost.images_per_second:>8.1f}",
            flush=True,
        )
    threads = torch.get_num_threads()
    print(
        f"MACs of one image; speed of batches of {batch_size} in fp32 on "
        f"{threads} thread{'s' if threads > 1 else ''} of this CPU"
    )


def data(arguments: Namespace) -> None:  # noqa: ARG001 (every command takes them)
    """List the registered sets, those of plugins too, and how to name them."""
    from visprism.data import DATA as REGISTERED

    print(columns(["data", "what it is"], described(REGISTERED)))
    print(f"\n{DATA}")


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
        help="part of a name, or a pattern such as '*vit*'",
    )
    tables = to.add_mutually_exclusive_group()
    tables.add_argument(
        "--cost",
        action="store_true",
        help="parameters, MACs per image and images per second of each model",
    )
    tables.add_argument(
        "--trained",
        action="store_true",
        help="networks with weights inside the package: accuracy, recipe, data",
    )
    to.add_argument(
        "--batch-size",
        type=positive,
        default=8,
        metavar="N",
        help="images per forward pass for --cost (default: 8)",
    )
    to.set_defaults(run=models)


def add_data(to: ArgumentParser) -> None:
    """The arguments of ``data``, of which there are none."""
    to.set_defaults(run=data)
