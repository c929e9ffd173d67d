"""Columns: which of a Hugging Face table hold the images and the classes."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int64

from visprism.core.errors import InputError

_MOST_CLASSES = 10**6  # numbers of classes without names; more are not classes


def chosen_column(
    wanted: str, candidates: Sequence[str], *, kind: str, option: str, name: str
) -> str:
    """The column that the user wants, or the only one of its kind.

    Raises:
        InputError: if there is none such, or several and the user has not chosen.
    """
    if wanted in candidates:
        return wanted
    there = f"it has {', '.join(candidates)}" if candidates else "it has none"
    if wanted:
        raise InputError(f"{name} has no {kind} column {wanted!r}; {there}")
    if not candidates:
        raise InputError(f"{name} has no {kind} column")
    if len(candidates) > 1:
        raise InputError(
            f"{name} has the {kind} columns {', '.join(candidates)}; "
            f"choose one with ?{option}={candidates[0]}"
        )
    return candidates[0]


def class_names(known: object, targets: Int64[np.ndarray, " n"], name: str) -> tuple[str, ...]:
    """The names of the classes; their numbers, where the data does not name them.

    Args:
        known: what the data holds as names, which should be a list of text; None: nothing.
        targets: the labels.
        name: of the data.

    Raises:
        InputError: if there is no image, or one whose class is missing or not among the names.
    """
    if not len(targets):
        raise InputError(f"{name} holds no image")
    if known is None:
        if targets.max() >= _MOST_CLASSES:
            raise InputError(
                f"labels of {name} must be less than {_MOST_CLASSES}, got {targets.max()}"
            )
        known = list(map(str, range(targets.max() + 1)))
    if not isinstance(known, list | tuple) or not all(isinstance(n, str) for n in known):
        raise InputError(f"the class names of {name} must be a list of text, got {known!r:.80}")
    names = tuple(known)
    wrong = (targets < 0) | (targets >= len(names))
    if wrong.any():
        raise InputError(
            f"{name} has {wrong.sum()} images without a class (the first has the label "
            f"{targets[wrong][0]}); wants labels of 0 ... {len(names) - 1}"
        )
    return names
