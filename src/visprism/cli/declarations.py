"""What analyses declare, read from their source text.

``visprism --help`` needs the name, the group and the first line of every analysis. Importing
the declarations needs torch, which takes seconds; reading them as text takes milliseconds.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path

_PACKAGE = "visprism.analyses"
_DEFAULT_GROUP = "feature maps"  # as in `Analysis`


@dataclass(frozen=True)
class Summary:
    """What the help shows of an analysis."""

    text: str  # first line of its docstring
    group: str


def summaries() -> dict[str, Summary]:
    """The summary of each analysis by its name, of built-in ones and of plug-ins."""
    return {
        name: summary
        for path in _sources()
        for name, summary in _declared(path, path.stat().st_mtime_ns)
    }


@cache
def groups() -> tuple[str, ...]:
    """The groups of analyses in the order of the help."""
    for path in _folder(_PACKAGE):
        if path.stem == "base":
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "GROUPS":
                    return ast.literal_eval(node.value)
    raise AssertionError(f"{_PACKAGE}.base declares no GROUPS")


def _sources() -> Iterator[Path]:
    yield from _folder(_PACKAGE)
    for plugin in entry_points(group="visprism.plugins"):
        yield from _plugin_sources(plugin)


def _folder(package: str) -> list[Path]:
    spec = find_spec(package)
    places = spec.submodule_search_locations if spec is not None else None
    return sorted(path for place in places or () for path in Path(place).glob("*.py"))


def _plugin_sources(plugin: EntryPoint) -> list[Path]:
    """The module that a plug-in names, or the modules of the package; nothing is imported."""
    top, *rest = plugin.module.split(".")
    spec = find_spec(top)
    if spec is None:
        return []  # reported when the plug-in is loaded
    if not spec.submodule_search_locations:
        return [Path(spec.origin)] if spec.origin else []
    paths = [Path(place).joinpath(*rest) for place in spec.submodule_search_locations]
    return [
        source
        for path in paths
        for source in (*sorted(path.glob("*.py")), path.with_suffix(".py"))
        if source.is_file()
    ]


@cache
def _declared(path: Path, modified: int) -> tuple[tuple[str, Summary], ...]:
    """Name and summary of each analysis of a file, as it was when last `modified`."""
    text = path.read_text(encoding="utf-8")
    if "ANALYSES.register" not in text:
        return ()
    classes = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]
    declared = []
    for node in filter(_is_registered, classes):
        values = _class_attributes(node)
        line = (ast.get_docstring(node) or "").partition("\n")[0]
        if "name" in values:
            group = values.get("group", _DEFAULT_GROUP)
            declared.append((values["name"], Summary(line, group)))
    return tuple(declared)


def _is_registered(node: ast.ClassDef) -> bool:
    return any(
        ast.unparse(decorator).endswith("ANALYSES.register")
        for decorator in node.decorator_list
    )


def _class_attributes(node: ast.ClassDef) -> dict[str, str]:
    """Class attributes that are literal texts, with or without a type annotation."""
    values = {}
    for statement in node.body:
        if isinstance(statement, ast.Assign):
            targets = statement.targets
        elif isinstance(statement, ast.AnnAssign):
            targets = [statement.target]
        else:
            continue
        value = statement.value
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            values[ast.unparse(targets[0])] = value.value
    return values
