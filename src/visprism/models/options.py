"""Validation of the options of networks of the zoo.

The type of an option is its annotation in the signature of the family; bounds of numbers depend
on its name. The family itself checks whether options match each other.
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
_LEAST: Mapping[str, int] = {  # of integers; families check kernels and MSAs
    "num_classes": 0,
    **dict.fromkeys(("in_chans", "img_size", "patch_size", "window"), 1),
    **dict.fromkeys(("depth", "depths", "num_heads", "head_dim"), 1),
}


def checked(function: F) -> F:
    """`function`, with the types and bounds of its options checked."""
    parameters = inspect.signature(function).parameters

    @wraps(function)
    def build(**chosen: Any) -> Any:
        check_network_options(function.__name__, parameters, chosen)
        return function(**chosen)

    return build  # pyrefly: ignore (takes what `function` takes)


def check_network_options(
    name: str, parameters: Mapping[str, inspect.Parameter], chosen: Mapping[str, Any]
) -> None:
    """Check the types and bounds of the options of the network `name`.

    Raises:
        InputError: if an option has another type, or is out of range.
        TypeError: if there is no such option; `load_model` makes an `InputError` of it.
    """
    for key, value in chosen.items():
        if key not in parameters:
            raise TypeError(f"{name}() got an unexpected keyword argument {key!r}")
        kind = parameters[key].annotation
        kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
        if not any(_is(value, one, key) for one in kinds):
            wanted = " or ".join(_words(one, key) for one in kinds)
            raise InputError(f"{key} of {name} must be {wanted}, got {value!r}")


def _is(value: object, kind: object, key: str) -> bool:
    if kind is int:
        return _is_integer(value, key)
    if kind == Sequence[int]:
        return isinstance(value, list | tuple) and all(_is_integer(part, key) for part in value)
    if kind is float:
        number = isinstance(value, Real) and not isinstance(value, bool)
        return number and (key not in _RATES or 0 <= float(value) < 1)
    if get_origin(kind) is Literal:
        return isinstance(value, str) and value in get_args(kind)
    if kind in (bool, str, NoneType):
        return isinstance(value, kind)  # pyrefly: ignore (it is a class here)
    return True


def _is_integer(value: object, key: str) -> bool:
    is_integer = isinstance(value, Integral) and not isinstance(value, bool)
    return is_integer and (key not in _LEAST or int(value) >= _LEAST[key])


def _words(kind: object, key: str) -> str:
    if get_origin(kind) is Literal:
        return " or ".join(map(repr, get_args(kind)))
    bound = f" of at least {_LEAST[key]}" if key in _LEAST else ""
    rate = " in [0, 1)" if key in _RATES else ""
    words = {
        int: f"an integer{bound}",
        Sequence[int]: f"a tuple with one integer{bound} per stage",
        float: f"a number{rate}",
        bool: "True or False",
        str: "text",
        NoneType: "None",
    }
    return words[kind]  # pyrefly: ignore (other kinds take any value)
