"""Metadata: what a checkpoint says of itself, beside the weights.

A safetensors file has room for text. Ours is one entry, ``visprism``, in JSON: how the model
was trained, how it wants its images, what its classes are called, how good it was, and where it
comes from.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, is_dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from visprism.errors import InputError
from visprism.preprocessing import Preprocessing
from visprism.result import Provenance

_ENTRY = "visprism"  # in the file's own metadata
_PAIRS = ("size", "mean", "std")  # of `Preprocessing`; JSON knows lists only


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
        InputError: if the file is missing, or is named .safetensors and is none.
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
    return _decoded(entries[_ENTRY]) if _ENTRY in entries else Metadata()


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


def _decoded(text: str) -> Metadata:
    content = json.loads(text)
    stated, facts = content["preprocessing"], content["provenance"]
    if stated is not None:
        stated |= {name: tuple(stated[name]) for name in _PAIRS}
    if facts is not None:
        facts["image_shape"] = tuple(facts["image_shape"])
    return Metadata(
        recipe=content["recipe"] or {},
        preprocessing=Preprocessing(**stated) if stated is not None else None,
        class_names=tuple(content["class_names"]),
        metrics=content["metrics"],
        provenance=Provenance(**facts) if facts is not None else None,
    )
