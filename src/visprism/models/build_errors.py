"""Mistakes in naming a model, each turned into one sentence that says what would be right."""

import difflib
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from visprism.core.errors import InputError
from visprism.models.spec import ModelSpec


def unknown_model(spec: ModelSpec, available: Iterable[str]) -> InputError:
    """What to say when no model has this name; `available`: full names with prefix."""
    bare = spec.name
    bare_of = {name: name.rpartition(":")[2] for name in available}
    longer = [name for name, other in bare_of.items() if other.startswith(bare)]
    close = difflib.get_close_matches(bare, set(bare_of.values()))
    similar = [name for word in close for name, other in bare_of.items() if other == word]
    best = list(dict.fromkeys(similar[:3] + longer[:3]))
    remedy = f"Did you mean {', '.join(best)}?" if best else "`visprism models` lists names."
    return InputError(f"unknown model {spec.text!r}. {remedy}")


@contextmanager
def explain_unknown_argument(spec: ModelSpec, builder: Callable[..., Any]) -> Iterator[None]:
    """Say which argument the model does not take, and which it does.

    timm and torchvision hand arguments on to a class in the builder's module, so only the call
    itself can tell.

    Raises:
        InputError: if the body calls `builder`, or its class, with an unknown argument.
    """
    try:
        yield
    except TypeError as error:
        parts = re.match(r"(\w+)(?:\.__init__)?\(\) got an unexpected .* '(\w+)'", str(error))
        if parts is None or parts[2] not in spec.arguments:
            raise
        owner = getattr(sys.modules[builder.__module__], parts[1], builder)
        taken = [k for k in inspect.signature(owner).parameters if not k.startswith("_")]
        close = difflib.get_close_matches(parts[2], taken, cutoff=0.7)
        remedy = (
            f"Did you mean {' or '.join(close)}?" if close else f"It takes {', '.join(taken)}."
        )
        raise InputError(f"{spec.text} takes no argument {parts[2]!r}. {remedy}") from error
