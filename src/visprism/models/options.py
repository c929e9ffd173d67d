"""Options: whether what a user chose for a network of the zoo is of the kind it wants.

What an option wants is said by its annotation in the family's signature, and by its name where
a number has bounds. Whether options fit each other is for the family to say.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from visprism.core.errors import InputError

F = TypeVar("F", bound=Callable[..., Any])

_RATES = ("drop_rate", "drop_path_rate", "mc_dropout")  # probabilities
_LEAST: Mapping[str, int] = {  # of whole numbers; kernels and MSAs are judged by families
    "num_classes": 0,
    **dict.fromkeys(("in_chans", "img_size", "patch_size", "window"), 1),
    **dict.fromkeys(("depth", "depths", "num_heads", "head_dim"), 1),
}


def checked(function: F) -> F:
    """`function`, which refuses options of another kind than its signature wants."""
    parameters = inspect.signature(function).parameters

    @wraps(function)
    def build(**chosen: Any) -> Any:  # noqa: ANN401 (as the function takes and gives)
        refuse_misfits(function.__name__, parameters, chosen)
        return function(**chosen)

    return build  # pyrefly: ignore (takes what `function` takes)


def refuse_misfits(
    name: str, parameters: Mapping[str, inspect.Parameter], chosen: Mapping[str, Any]
) -> None:
    """Check that each option that was chosen for the network `name` is of its kind.

    Raises:
        InputError: if a whole number, a number for each stage, a rate, a word, or True or False
            is wanted and something else was given.
        TypeError: if there is no such option, in Python's words, which `load_model` mends.
    """
    for key, value in chosen.items():
        if key not in parameters:
            raise TypeError(f"{name}() got an unexpected keyword argument {key!r}")
        kind = parameters[key].annotation
        kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
        if not any(_is(value, one, key) for one in kinds):
            wanted = " or ".join(_words(one, key) for one in kinds)
            raise InputError(f"{name} got {key}={value!r}; choose {wanted}")


def _is(value: object, kind: object, key: str) -> bool:
    if kind is int:
        return _is_whole(value, key)
    if kind == Sequence[int]:
        return isinstance(value, list | tuple) and all(_is_whole(part, key) for part in value)
    if kind is float:
        number = isinstance(value, Real) and not isinstance(value, bool)
        return number and (key not in _RATES or 0 <= float(value) < 1)
    if get_origin(kind) is Literal:
        return isinstance(value, str) and value in get_args(kind)
    if kind in (bool, str, NoneType):
        return isinstance(value, kind)  # pyrefly: ignore (it is a class here)
    return True


def _is_whole(value: object, key: str) -> bool:
    is_integer = isinstance(value, Integral) and not isinstance(value, bool)
    return is_integer and (key not in _LEAST or int(value) >= _LEAST[key])


def _words(kind: object, key: str) -> str:
    if get_origin(kind) is Literal:
        return " or ".join(map(repr, get_args(kind)))
    bound = f" from {_LEAST[key]} up" if key in _LEAST else ""
    rate = " from 0 to less than 1" if key in _RATES else ""
    words = {
        int: f"a whole number{bound}",
        Sequence[int]: f"a tuple of one whole number{bound} for each stage",
        float: f"a number{rate}",
        bool: "True or False",
        str: "a word",
        NoneType: "None",
    }
    return words[kind]  # pyrefly: ignore (other kinds take any value)
