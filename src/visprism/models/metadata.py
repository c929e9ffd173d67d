"""Metadata of a checkpoint: recipe, preprocessing, class names, metrics and provenance.

A safetensors file stores text in its header. The entry ``visprism`` holds the metadata as JSON.
"""

import inspect
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, is_dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from safetensors import SafetensorError, safe_open

from visprism.core.errors import InputError
from visprism.core.files import is_file
from visprism.core.preprocessing import Preprocessing
from visprism.core.provenance import Provenance

_ENTRY = "visprism"  # in the file's own metadata
_PARTS = {"recipe", "preprocessing", "class_names", "metrics", "provenance"}
T = TypeVar("T")


@dataclass(frozen=True)
class Metadata:
    """The metadata of a checkpoint; entries that it lacks are empty or None."""

    recipe: Mapping[str, Any] = field(default_factory=dict)  # a training run's fields by name
    preprocessing: Preprocessing | None = None
    class_names: tuple[str, ...] = ()  # in the order of the logits
    metrics: Mapping[str, float] = field(default_factory=dict)  # by name, as "accuracy"
    provenance: Provenance | None = None


def read_metadata(path: Path | str) -> Metadata:
    """The metadata of the checkpoint in `path`; empty if visprism did not write it."""
    path = Path(path)
    if not is_file(path):
        raise InputError(f"the checkpoint {path} must be an existing file")
    if path.suffix != ".safetensors":
        return Metadata()
    try:
        with safe_open(path, "pt") as file:
            entries: Mapping[str, str] = file.metadata() or {}
    except SafetensorError as error:
        raise InputError(
            f"{path} was refused: it is not a safetensors file ({error})"
        ) from error
    return _decoded(entries[_ENTRY], path) if _ENTRY in entries else Metadata()


def encode_metadata(
    *,
    recipe: object = None,
    preprocessing: Preprocessing | None = None,
    class_names: tuple[str, ...] = (),
    metrics: Mapping[str, float] | None = None,
    provenance: Provenance | None = None,
) -> dict[str, str]:
    """The metadata as text for the header of a safetensors file."""
    content = {
        "recipe": _fields(recipe),
        "preprocessing": _fields(preprocessing),
        "class_names": list(class_names),
        "metrics": dict(metrics or {}),
        "provenance": _fields(provenance),
    }
    try:
        return {_ENTRY: json.dumps(content)}
    except (TypeError, ValueError) as error:
        raise InputError(
            f"metadata of a checkpoint must be text, numbers, lists and dictionaries: {error}"
        ) from error


def _fields(value: object) -> dict[str, Any] | None:
    if value is None:
        return None
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise InputError(
        f"recipe must be a dataclass or a dictionary, got one of type {type(value).__name__}"
    )


def _decoded(text: str, path: Path) -> Metadata:
    """The metadata in the entry of the file `path`, of the types that it was written with."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _refused(path, f"they are not JSON ({error})") from error
    if not isinstance(content, dict) or set(content) != _PARTS:
        raise _refused(path, f"they must have the entries {', '.join(sorted(_PARTS))}")
    names, metrics, recipe = (content[part] for part in ("class_names", "metrics", "recipe"))
    if not _is(names, tuple[str, ...]):
        raise _refused(path, "class_names must be a list of text")
    if not (isinstance(metrics, dict) and _is(list(metrics.values()), tuple[float, ...])):
        raise _refused(path, "metrics must be a mapping of names to numbers")
    if not isinstance(recipe, dict | None):
        raise _refused(path, "recipe must be a dictionary of fields, or null")
    return Metadata(
        recipe=recipe or {},
        preprocessing=_made(Preprocessing, content["preprocessing"], "preprocessing", path),
        class_names=tuple(names),
        metrics=metrics,
        provenance=_made(Provenance, content["provenance"], "provenance", path),
    )


def _made(kind: type[T], stated: object, part: str, path: Path) -> T | None:
    """An instance of `kind` from its fields by name; None if there are none."""
    if stated is None:
        return None
    if not isinstance(stated, dict):
        raise _refused(path, f"{part} must be a dictionary of fields, or null")
    kinds = get_type_hints(kind)
    for name, value in stated.items():
        if name not in kinds:
            raise _refused(path, f"{part} has no field {name!r}")
        if not _is(value, kinds[name]):
            raise _refused(path, f"{part} has an invalid value {name}={value!r}")
    try:
        inspect.signature(kind).bind(**stated)
    except TypeError as error:
        raise _refused(path, f"{part} is incomplete ({error})") from error
    try:
        return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in stated.items()})
    except InputError as error:  # the types are right, but a value is out of range
        raise _refused(path, str(error)) from error


def _is(value: object, kind: Any) -> bool:
    """Whether a value of JSON has the type of a field; a list counts as a tuple."""
    if get_origin(kind) is not tuple:
        return type(value) in ((int, float) if kind is float else (kind,))
    if not isinstance(value, list):
        return False
    parts = get_args(kind)
    if parts[-1] is Ellipsis:
        return all(_is(one, parts[0]) for one in value)
    return len(value) == len(parts) and all(map(_is, value, parts))


def _refused(path: Path, fault: str) -> InputError:
    return InputError(
        f"{path} was refused: its visprism metadata are invalid: {fault}. Save "
        "it again with save_checkpoint, or remove the metadata."
    )
