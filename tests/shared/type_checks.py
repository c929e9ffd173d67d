"""Annotations are checked in every call that a test makes.

jaxtyping's import hook opens a scope of axis names in each call of each function, which took
more than half of the time of all tests. Functions that name no axes are checked by the type
checker alone.
"""

import functools
import inspect
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from types import CodeType
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
    has_names = any(isinstance(a, str) for a in function.__annotations__.values())
    return not has_names and not inspect.isgeneratorfunction(function)


def _checked_by(typechecker: Callable, function: Callable) -> Callable:
    if "<locals>" in function.__qualname__:
        return _checked_as_its_code(typechecker, function)
    return _switched(_with_checks(typechecker, function), function)


def _with_checks(typechecker: Callable, function: Callable) -> Callable:
    with_checks = typechecker(function)
    if any(map(_names_axes, function.__annotations__.values())):
        with_checks = _with_scope(with_checks, typechecker=None)
    return with_checks


def _switched(with_checks: Callable, function: Callable) -> Callable:
    """`with_checks` unless checks are switched off, then `function`."""

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        if jaxtyping.config.jaxtyping_disable:
            return function(*args, **options)
        return with_checks(*args, **options)

    return call


_nested: dict[CodeType, tuple[dict[str, Any], Callable]] = {}
_called: ContextVar[Callable] = ContextVar("_called")


def _checked_as_its_code(typechecker: Callable, function: Callable) -> Callable:
    """Check a function that is made in each call of another one.

    Writing and compiling its checks takes a millisecond, so they are written for the first one
    and call the one at hand.
    """
    annotations, with_checks = _nested.get(function.__code__, (None, None))
    if with_checks is None or annotations != function.__annotations__:

        @functools.wraps(function)
        def at_hand(*args: Any, **options: Any) -> Any:
            return _called.get()(*args, **options)

        with_checks = _with_checks(typechecker, at_hand)
        del vars(at_hand)["__wrapped__"]  # and what the first function refers to
        _nested[function.__code__] = dict(function.__annotations__), with_checks

    def with_its_checks(*args: Any, **options: Any) -> Any:
        token = _called.set(function)
        try:
            return with_checks(*args, **options)
        finally:
            _called.reset(token)

    return _switched(with_its_checks, function)


def _names_axes(annotation: object) -> bool:
    if inspect.isclass(annotation) and issubclass(annotation, jaxtyping.AbstractArray):
        return True
    return any(map(_names_axes, _parts(annotation)))


def _parts(annotation: object) -> Iterator[object]:
    for part in get_args(annotation):
        if isinstance(part, list):  # the arguments of a callable
            yield from part
        elif not isinstance(part, str):  # of a Literal
            yield part
