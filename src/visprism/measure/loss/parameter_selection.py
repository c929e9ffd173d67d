"""Selections: which of a model's parameters an objective is a function of."""

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cache

from torch import nn

from visprism.anatomy import Anatomy, Block
from visprism.core.errors import InputError

# "all"; a name or a pattern of names, as "blocks.*.attn.*"; "block:NAME", "stage:NUMBER" or
# "kind:KIND" of the model's anatomy; a block; or several of these.
Selection = str | Block | Iterable[str | Block]


def selected(
    model: nn.Module, selection: Selection, anatomy: Callable[[], Anatomy]
) -> tuple[str, ...]:
    """Names of the chosen parameters that are floating-point, in the model's own order.

    Args:
        model: its parameters are those of ``named_parameters``, shared ones once.
        selection: see `Selection`.
        anatomy: called if a block, a stage or a kind is asked for.

    Raises:
        InputError: if a part of the selection matches nothing.
    """
    names = [n for n, p in model.named_parameters() if p.is_floating_point()]
    if not names:
        raise InputError(f"{type(model).__name__} has no parameters; give a model that has")
    anatomy = cache(anatomy)
    parts = [selection] if isinstance(selection, str | Block) else list(selection)
    chosen = {name for part in parts for name in _matching(names, part, anatomy)}
    if not chosen:
        raise InputError("the selection of parameters is empty; 'all' takes every one")
    return tuple(name for name in names if name in chosen)


def _matching(
    names: list[str], part: str | Block, anatomy: Callable[[], Anatomy]
) -> Iterable[str]:
    if part == "all":
        return names
    if isinstance(part, Block):
        found = [name for name in names if name in part.parameters]
        return found or _nothing(f"block {part.name!r}", "it has none of its own")
    what, colon, which = part.partition(":")
    if colon and what in {"block", "stage", "kind"}:
        blocks = _blocks(anatomy(), what, which)
        own = {name for block in blocks for name in block.parameters}
        return [n for n in names if n in own] or _nothing(part, "it has none of its own")
    found = [name for name in names if fnmatchcase(name, part)]
    close = get_close_matches(part, names, cutoff=0.0)
    return found or _nothing(part, f"the model has {', '.join(close)} and others")


def _blocks(anatomy: Anatomy, what: str, which: str) -> list[Block]:
    if what == "block":
        return [anatomy[which]]
    found = [b for b in anatomy if str(b.stage if what == "stage" else b.kind) == which]
    if not found:
        there = dict.fromkeys(str(b.stage if what == "stage" else b.kind) for b in anatomy)
        _nothing(f"{what}:{which}", f"the model has the {what}s {', '.join(there)}")
    return found


def _nothing(part: str, way_out: str) -> list[str]:
    raise InputError(f"no parameter matches {part}; {way_out}")
