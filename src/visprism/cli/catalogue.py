"""``visprism models`` and ``visprism data``: what can be named."""

from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatch

from visprism.cli.naming import DATA, MODEL
from visprism.cli.text import columns
from visprism.errors import InputError


def models(arguments: Namespace) -> None:
    """List the zoo, or every name of any source that fits a pattern."""
    from visprism.models import MODELS

    if arguments.pattern is None:
        print(columns(["model of the zoo", "what it is"], _described(MODELS)))
        print(f"\n{MODEL}\n`visprism models PATTERN` searches timm and torchvision too.")
        return
    from visprism.models.sources import names_elsewhere

    names = [*MODELS, *names_elsewhere()]
    pattern = arguments.pattern
    if not set("*?[") & set(pattern):
        pattern = f"*{pattern}*"
    found = [n for n in names if fnmatch(n, pattern) or fnmatch(n.rpartition(":")[2], pattern)]
    if not found:
        raise InputError(f"no model of the zoo, timm or torchvision fits {arguments.pattern!r}")
    print("\n".join(found))


def data(arguments: Namespace) -> None:  # noqa: ARG001 (every command takes them)
    """List the registered sets, those of plugins too, and how to name them."""
    from visprism.data import DATA as REGISTERED

    print(columns(["data", "what it is"], _described(REGISTERED)))
    print(f"\n{DATA}")


def _described(registry: Mapping[str, Callable]) -> Iterable[tuple[str, str]]:
    for name, function in registry.items():
        yield name, (function.__doc__ or "").strip().partition("\n")[0]
