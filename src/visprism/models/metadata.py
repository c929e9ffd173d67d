"""Metadata: what a checkpoint says of itself, beside the weights.

A safetensors file has room for text. Ours is one entry, ``visprism``, in JSON: how the model
was trained, how it wants its images, what its classes are called, how good it was, and where it
comes from.
"""

import inspect
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, is_dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from safetensors import SafetensorError, safe_open

from visprism.core.errors import InputError
from visprism.core.preprocessing import Preprocessing
from visprism.core.provenance import Provenance

_ENTRY = "visprism"  # in the file's own metadata
_PARTS = {"recipe", "preprocessing", "class_names", "metrics", "provenance"}
T = TypeVar("T")


@dataclass(frozen=True)
class Metadata:
    """What a checkpoint says of itself; each part is empty or None where it does not say."""

    recipe: Mapping[str, Any] = field(default_factory=dict)  # a training run's fields by name
    preprocessing: Preprocessing | None = None
    class_names: tuple[str, ...] = ()  # in the order of the logits
    metrics: Mapping[str, float] = field(default_factory=dict)  # by name, as "accuracy"
    provenance: Provenance | None = None


def read_metadata(path: Path | str) -> Metadata:
    """What the checkpoint in `path` says of itself; empty if it is not one of ours.

    Raises:
        InputError: if the file is missing, is named .safetensors and is none, or its entry is
            not what `encoded` writes.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"the checkpoint {path} does not exist or is not a file")
    if path.suffix != ".safetensors":
        return Metadata()
    try:
        with safe_open(path, "pt") as file:
            entries: Mapping[str, str] = file.metadata() or {}
    except SafetensorError as error:
        raise InputError(f"{path} was refused: it is no safetensors file ({error})") from error
    return _decoded(entries[_ENTRY], path) if _ENTRY in entries else Metadata()


def encoded(
    *,
    recipe: object = None,
    preprocessing: Preprocessing | None = None,
    class_names: tuple[str, ...] = (),
    metrics: Mapping[str, float] | None = None,
    provenance: Provenance | None = None,
) -> dict[str, str]:
    """The metadata as text for the head of a safetensors file.

    Raises:
        InputError: if something in it has no place in JSON.
    """
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
            f"a checkpoint's metadata are text, numbers, lists and dictionaries, but {error}"
        ) from error


def _fields(value: object) -> dict[str, Any] | None:
    if value is None:
        return None
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise InputError(
        f"a checkpoint keeps a dataclass or a dictionary as its recipe, got a "
        f"{type(value).__name__}"
    )


def _decoded(text: str, path: Path) -> Metadata:
    """What stands in the entry of the file `path`, each part of the kind that we write."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _refused(path, f"they are no JSON ({error})") from error
    if not isinstance(content, dict) or set(content) != _PARTS:
        raise _refused(path, f"they want the parts {', '.join(sorted(_PARTS))}")
    names, metrics, recipe = (content[part] for part in ("class_names", "metrics", "recipe"))
    if not _is(names, tuple[str, ...]):
        raise _refused(path, "class_names wants a list of text")
    if not (isinstance(metrics, dict) and _is(list(metrics.values()), tuple[float, ...])):
        raise _refused(path, "metrics wants a number for each name")
    if not isinstance(recipe, dict | None):
        raise _refused(path, "recipe wants fields by name, or null")
    return Metadata(
        recipe=recipe or {},
        preprocessing=_made(Preprocessing, content["preprocessing"], "preprocessing", path),
        class_names=tuple(names),
        metrics=metrics,
        provenance=_made(Provenance, content["provenance"], "provenance", path),
    )


def _made(kind: type[T], stated: object, part: str, path: Path) -> T | None:
    """A `kind` from its fields by name; None if there are none."""
    if stated is None:
        return None
    if not isinstance(stated, dict):
        raise _refused(path, f"{part} wants fields by name, or null")
    kinds = get_type_hints(kind)
    for name, value in stated.items():
        if name not in kinds:
            raise _refused(path, f"{part} has no field {name!r}")
        if not _is(value, kinds[name]):
            raise _refused(path, f"{part} has {name}={value!r}")
    try:
        inspect.signature(kind).bind(**stated)
    except TypeError as error:
        raise _refused(path, f"{part} is not whole ({error})") from error
    try:
        return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in stated.items()})
    except InputError as error:  # of the right kinds, but without sense
        raise _refused(path, str(error)) from error


def _is(value: object, kind: Any) -> bool:  # noqa: ANN401 (a class, or a tuple of classes)
    """Whether JSON's `value` is of a field's kind; a list is a tuple."""
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
        f"{path} was refused: its metadata of visprism are damaged: {fault}; write it again "
        "by save_checkpoint, or name a copy without them"
    )
