"""The columns of a Hugging Face table that hold images and classes."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int64

from visprism.core.errors import InputError

_MOST_CLASSES = 10**6  # numbers of classes without names; more are not classes


def chosen_column(
    wanted: str, candidates: Sequence[str], *, kind: str, option: str, name: str
) -> str:
    """The column `wanted`, or the only one of its kind if none is named."""
    if wanted in candidates:
        return wanted
    names = ", ".join(candidates)
    if wanted:
        raise InputError(
            f"{option} must be a {kind} column of {name} ({names or 'none'}), got {wanted!r}"
        )
    if not candidates:
        raise InputError(f"{name} must have a column of type {kind}, got none")
    if len(candidates) > 1:
        raise InputError(
            f"{name} has several {kind} columns ({names}). Select one, such as "
            f"?{option}={candidates[0]}."
        )
    return candidates[0]


def class_names(stored: object, targets: Int64[np.ndarray, " n"], name: str) -> tuple[str, ...]:
    """The names of the classes; their numbers, where the data does not name them.

    Args:
        stored: what the data holds as names, which should be a list of text; None: nothing.
        targets: the labels.
        name: of the data.
    """
    if not len(targets):
        raise InputError(f"{name} must have at least one image, got none")
    if stored is None:
        if targets.max() >= _MOST_CLASSES:
            raise InputError(
                f"labels of {name} must be less than {_MOST_CLASSES}, got {targets.max()}"
            )
        stored = list(map(str, range(targets.max() + 1)))
    if not isinstance(stored, list | tuple) or not all(isinstance(n, str) for n in stored):
        raise InputError(
            f"the class names of {name} must be a list of text, got {stored!r:.80}"
        )
    names = tuple(stored)
    wrong = (targets < 0) | (targets >= len(names))
    if wrong.any():
        raise InputError(
            f"labels of {name} must be in 0 ... {len(names) - 1}, got {targets[wrong][0]} and "
            f"{wrong.sum() - 1} more"
        )
    return names
