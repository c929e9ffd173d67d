"""Selections: which of a model's parameters an objective is a function of."""

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cache

from torch import Tensor, nn

from visprism.anatomy import Anatomy, Block
from visprism.core.errors import InputError

# "all"; "matrices" (without biases, norms, tokens and position embeddings);
# a name or a pattern of names, such as "blocks.*.attn.*"; "block:NAME", "stage:NUMBER" or
# "kind:KIND" of the model's anatomy; a block; or several of these.
Selection = str | Block | Iterable[str | Block]


def selected(
    model: nn.Module, selection: Selection, anatomy: Callable[[], Anatomy]
) -> tuple[str, ...]:
    """Names of the chosen floating-point parameters, in the order of the model."""
    names = [n for n, p in model.named_parameters() if p.is_floating_point()]
    if not names:
        raise InputError(f"model must have parameters, and {type(model).__name__} has none")
    anatomy = cache(anatomy)
    parts = [selection] if isinstance(selection, str | Block) else list(selection)
    matrices = {n for n, p in model.named_parameters() if _is_matrix(p)}
    chosen = {
        name
        for part in parts
        for name in (
            [n for n in names if n in matrices]
            if part == "matrices"
            else _matching(names, part, anatomy)
        )
    }
    if not chosen:
        raise InputError(
            "the selection of parameters must not be empty; 'all' selects every one"
        )
    return tuple(name for name in names if name in chosen)


def _is_matrix(parameter: Tensor) -> bool:
    """Whether a parameter is a kernel or matrix, to which recipes apply weight decay.

    It has at least two axes longer than 1, and is no position embedding (1, N, C).
    """
    table = parameter.ndim == 3 and len(parameter) == 1
    return sum(length > 1 for length in parameter.shape) >= 2 and not table


def _matching(
    names: list[str], part: str | Block, anatomy: Callable[[], Anatomy]
) -> Iterable[str]:
    if part == "all":
        return names
    if isinstance(part, Block):
        matches = [name for name in names if name in part.parameters]
        return matches or _nothing(f"block {part.name!r}", "the block has none")
    what, colon, which = part.partition(":")
    if colon and what in {"block", "stage", "kind"}:
        blocks = _blocks(anatomy(), what, which)
        selected_names = {name for block in blocks for name in block.parameters}
        return [n for n in names if n in selected_names] or _nothing(part, "it has none")
    matches = [name for name in names if fnmatchcase(name, part)]
    close = get_close_matches(part, names, cutoff=0.0)
    return matches or _nothing(part, f"the model has {', '.join(close)} and others")


def _blocks(anatomy: Anatomy, what: str, which: str) -> list[Block]:
    if what == "block":
        return [anatomy[which]]
    blocks = [b for b in anatomy if str(b.stage if what == "stage" else b.kind) == which]
    if not blocks:
        available = dict.fromkeys(str(b.stage if what == "stage" else b.kind) for b in anatomy)
        _nothing(f"{what}:{which}", f"the model has the {what}s {', '.join(available)}")
    return blocks


def _nothing(part: str, remedy: str) -> list[str]:
    raise InputError(f"no parameter matches {part}: {remedy}")
