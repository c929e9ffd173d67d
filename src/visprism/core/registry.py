"""Registries: functions by name, to which users and plug-ins can add.

A plugin is a package that declares a module in the entry-point group ``visprism.plugins``;
importing that module registers what it offers, with the same decorator as the built-ins use.
"""

import difflib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pkgutil import walk_packages
from typing import Any, TypeVar

from visprism.core.errors import InputError

F = TypeVar("F", bound=Callable[..., Any])
_LOGGER = logging.getLogger("visprism")


@cache
def import_all(name: str) -> None:
    """Import a module, and all modules below it if it is a package."""
    below = getattr(import_module(name), "__path__", ())
    for module in walk_packages(below, f"{name}."):
        import_module(module.name)


@cache
def load_plugins() -> None:
    """Import every installed plugin, once; one that fails is a warning that names it."""
    for plugin in entry_points(group="visprism.plugins"):
        try:
            plugin.load()
        except (Exception, SystemExit) as error:  # whatever a module of somebody else does
            reason = f"{type(error).__name__}: {error}"
            _LOGGER.warning("the plug-in %s is left out (%s)", plugin.name, reason)


def suggestion(name: str, names: Sequence[str]) -> str:
    """A sentence with the names that are close to `name`, or with all names.

    Example:
        >>> suggestion("furier", ["fourier", "cka"]), suggestion("x", ["fourier", "cka"])
        ('Did you mean fourier?', 'Available: cka, fourier.')
    """
    if not names:
        return "There are none."
    close = difflib.get_close_matches(name, names)
    if close:
        return f"Did you mean {', '.join(close)}?"
    return f"Available: {', '.join(sorted(names))}."


class Registry(Mapping[str, Callable[..., Any]]):
    """A read-only mapping from name to function, filled by `register`.

    Built-in functions register when the registry is first read: then `home` is imported, a
    module or a package with all its modules.
    """

    def __init__(self, kind: str, home: str) -> None:
        self._kind = kind
        self._home = home
        self._functions: dict[str, Callable[..., Any]] = {}
        self._declared: dict[str, str] = {}  # name -> module

    def register(self, function: F) -> F:
        """Add `function` under its own name."""
        self.add(function.__name__, function)
        return function

    def add(self, name: str, function: Callable[..., Any]) -> None:
        """Add `function` under a name that no other has, built-in ones included."""
        if not function.__module__.startswith("visprism."):
            import_all(self._home)
        if name in self._functions:
            raise InputError(f"{self._kind} {name!r} is already registered")
        self._functions[name] = function

    def _fill(self) -> None:
        import_all(self._home)
        load_plugins()

    def declare(self, name: str, module: str) -> None:
        """Add a function of a module that is imported when the function is looked up.

        For functions of higher layers. Iteration does not list them.
        """
        self._declared[name] = module

    def __contains__(self, name: object) -> bool:
        """Whether the name can be looked up."""
        self._fill()
        return name in self._functions or name in self._declared

    def __getitem__(self, name: str) -> Callable[..., Any]:
        self._fill()
        if name in self._functions:
            return self._functions[name]
        if name in self._declared:
            return getattr(import_module(self._declared[name]), name)
        raise InputError(
            f"unknown {self._kind} {name!r}. {suggestion(str(name), sorted(self._functions))}"
        )

    def __iter__(self) -> Iterator[str]:
        self._fill()
        return iter(sorted(self._functions))

    def __len__(self) -> int:
        self._fill()
        return len(self._functions)
