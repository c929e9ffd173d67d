"""Show how a vision model works: split it into blocks and measure what each block does.

The public names are listed in ``__init__.pyi``, once, for type checkers and for this file. Each
is loaded when it is first used (PEP 562): ``import visprism`` by itself does not import torch.
"""

import ast
from importlib import import_module
from pathlib import Path

_HOMES = {
    name.name: node.module or ""
    for node in ast.parse(Path(__file__).with_suffix(".pyi").read_text("utf-8")).body
    if isinstance(node, ast.ImportFrom)
    for name in node.names
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> object:
    if name == "__version__":
        return import_module("importlib.metadata").version(__name__)
    if name not in _HOMES:
        raise AttributeError(f"module 'visprism' has no attribute {name!r}")
    home = _HOMES[name]
    if home == __name__:  # a subpackage
        return import_module(f"{home}.{name}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
