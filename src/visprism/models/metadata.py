"""Metadata of a checkpoint: recipe, preprocessing, class names, metrics and provenance.

A safetensors file stores text in its header. The entry ``visprism`` holds the metadata as JSON.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, is_dataclass
from pathlib import Path
from typing import Any

import msgspec
from safetensors import SafetensorError, safe_open

from visprism.core.errors import InputError
from visprism.core.files import is_file
from visprism.core.preprocessing import Preprocessing
from visprism.core.provenance import Provenance

_ENTRY = "visprism"  # in the file's own metadata


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
    try:
        content = json.loads(entries.get(_ENTRY, "{}"))
        stated = {k: v for k, v in content.items() if v is not None}
        return msgspec.convert(stated, Metadata)
    except (ValueError, AttributeError, RecursionError) as error:
        raise InputError(
            f"{path} was refused: its visprism metadata are invalid: {error}. Save it again "
            "with save_checkpoint, or remove the metadata."
        ) from error


def encode_metadata(*, recipe: object = None, **entries: Any) -> dict[str, str]:
    """The metadata, entries of `Metadata`, as text for the header of a safetensors file."""
    if is_dataclass(recipe) and not isinstance(recipe, type):
        recipe = asdict(recipe)
    if not isinstance(recipe, Mapping | None):
        raise InputError(
            "recipe must be a dataclass or a dictionary, got one of type "
            f"{type(recipe).__name__}"
        )
    content = asdict(
        Metadata(recipe or {}, **{k: v for k, v in entries.items() if v is not None})
    )
    try:
        return {_ENTRY: json.dumps(content)}
    except (TypeError, ValueError) as error:
        raise InputError(
            f"metadata of a checkpoint must be text, numbers, lists and dictionaries: {error}"
        ) from error
