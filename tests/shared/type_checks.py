"""Annotations are checked in every call that a test makes.

jaxtyping's import hook opens a scope of axis names in each call of each function, which took
more than half of the time of all tests. Functions that name no axes are checked by the type
checker alone.
"""

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, get_args

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
        if hasattr(item, "__dataclass_fields__") and _needs_no_scope(initializer):
            item.__init__ = _checked_by(typechecker, initializer)
            return item
    elif _needs_no_scope(item):
        return _checked_by(typechecker, item)
    return _with_scope(item, typechecker=typechecker)


def _checked_by(typechecker: Callable, function: Callable) -> Callable:
    with_checks = typechecker(function)

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        if jaxtyping.config.jaxtyping_disable:
            return function(*args, **options)
        return with_checks(*args, **options)

    return call


def _needs_no_scope(function: object) -> bool:
    """Whether a function's annotations name no axes.

    Generators have a scope all the same: a type checker alone looks at their arguments only
    when their first value is asked for.
    """
    if not inspect.isfunction(function) or hasattr(function, "__wrapped__"):
        return False
    if inspect.isgeneratorfunction(function):
        return False
    return not any(map(_names_axes, function.__annotations__.values()))


def _names_axes(annotation: object) -> bool:
    if isinstance(annotation, str):  # not evaluated yet
        return True
    if inspect.isclass(annotation) and issubclass(annotation, jaxtyping.AbstractArray):
        return True
    return any(map(_names_axes, _parts(annotation)))


def _parts(annotation: object) -> Iterator[object]:
    for part in get_args(annotation):
        if isinstance(part, list):  # the arguments of a callable
            yield from part
        elif not isinstance(part, str):  # of a Literal
            yield part
