"""Files of the experiment: JSON of a declared type, and text written whole or not at all."""

from pathlib import Path
from typing import Any

import msgspec

import visprism as vp


def read_json(path: Path, kind: Any, what: str) -> Any:
    """What a JSON file holds, of a declared type; `what` is named where it does not fit."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise vp.InputError(f"{path} must be {what} ({error.strerror})") from error
    except ValueError as error:
        raise vp.InputError(f"{path} must be {what} ({error})") from error


def write_text(path: Path, text: str) -> None:
    """Write a file; one that was there stays until the new one is complete."""
    scratch = path.with_name(f".{path.name}.new")
    scratch.write_text(text, encoding="utf-8")
    scratch.replace(path)
