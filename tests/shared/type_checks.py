"""Annotations are checked in every call that a test makes.

jaxtyping's import hook opens a scope of axis names in each call of each function, which took
more than half of the time of all tests. Functions that name no axes are checked by the type
checker alone.
"""

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, ForwardRef, Literal, get_args, get_origin

import jaxtyping

_with_scope = jaxtyping.jaxtyped


def install() -> None:
    """Have the import hook use `checked`; to be called before the package is imported."""
    jaxtyping.jaxtyped = checked  # pyrefly: ignore[bad-assignment]


def checked(*scope: str, **options: Callable) -> Any:
    """A decorator of functions and classes, or a scope, as `jaxtyping.jaxtyped` returns it."""
    return _with_scope(*scope) if scope else functools.partial(_checked, **options)


def _checked(item: Any, *, typechecker: Callable) -> Any:
    if inspect.isclass(item):
        initializer = vars(item).get("__init__")
        if hasattr(item, "__dataclass_fields__") and _is_plain(initializer):
            item.__init__ = _checked_by(typechecker, initializer)
            return item
    elif _is_plain(item):
        return _checked_by(typechecker, item)
    return _with_scope(item, typechecker=typechecker)


def _is_plain(function: object) -> bool:
    """Whether a function may be given to the type checker as it is.

    Of a generator it would check arguments only when the first value is asked for, and names
    that are imported for type checks alone do not exist.
    """
    if not inspect.isfunction(function) or hasattr(function, "__wrapped__"):
        return False
    has_names = any(map(_is_named, function.__annotations__.values()))
    return not has_names and not inspect.isgeneratorfunction(function)


def _is_named(annotation: object) -> bool:
    """Whether an annotation is a name, or has one within."""
    if isinstance(annotation, str | ForwardRef):
        return True
    parts = () if get_origin(annotation) is Literal else get_args(annotation)
    return any(any(map(_is_named, p)) if isinstance(p, list) else _is_named(p) for p in parts)


def _checked_by(typechecker: Callable, function: Callable) -> Callable:
    if "<locals>" in function.__qualname__:  # made anew in each call of another one
        return function
    return _checked_when_called(typechecker, function)


def _with_checks(typechecker: Callable, function: Callable) -> Callable:
    with_checks = typechecker(function)
    arrays = [a for hint in function.__annotations__.values() for a in _arrays(hint)]
    if any("{" in array.dim_str for array in arrays):  # an axis as long as an argument says
        return _with_scope(with_checks, typechecker=None)
    return _in_scope(with_checks) if arrays else with_checks


def _in_scope(with_checks: Callable) -> Callable:
    """One scope of axis names for each call; arguments are not bound to their names."""
    scope = _with_scope("context")

    @functools.wraps(with_checks)
    def call(*args: Any, **options: Any) -> Any:
        with scope:
            return with_checks(*args, **options)

    return call


def _checked_when_called(typechecker: Callable, function: Callable) -> Callable:
    """Write the checks in the first call: writing those of the package takes seconds."""
    with_checks = None

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        nonlocal with_checks
        if jaxtyping.config.jaxtyping_disable:
            return function(*args, **options)
        if with_checks is None:
            with_checks = _with_checks(typechecker, function)
        return with_checks(*args, **options)

    return call


def _arrays(annotation: object) -> Iterator[type[jaxtyping.AbstractArray]]:
    """Annotations of arrays, which name axes, in an annotation."""
    if inspect.isclass(annotation) and issubclass(annotation, jaxtyping.AbstractArray):
        yield annotation
    else:
        for part in _parts(annotation):
            yield from _arrays(part)


def _parts(annotation: object) -> Iterator[object]:
    for part in get_args(annotation):
        if isinstance(part, list):  # the arguments of a callable
            yield from part
        elif not isinstance(part, str):  # of a Literal
            yield part
