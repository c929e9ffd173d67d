"""``visprism examine FILE.yaml``: a study file as arguments of the command line.

The fields of the file are the long flags of ``examine`` with underscores, ``models``, and
``options`` by analysis. Flags that follow the file take precedence over it.
"""

import argparse
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from visprism.core.errors import InputError
from visprism.core.files import read_fields
from visprism.core.registry import suggestion

_WHAT = "the study file"
_NOT_FIELDS = ("help", "set", "json", "fresh")  # of a call, or written otherwise
Models = list[str] | dict[str, str]


def is_study_file(word: str) -> bool:
    """Whether an argument names a study file."""
    return word.endswith((".yaml", ".yml"))


def study_arguments(path: Path, parser: argparse.ArgumentParser) -> tuple[list[str], Models]:
    """The words that stand for a study file on the command line, and its models.

    A file in the folder of a study, as `examine` writes it, has that folder for ``out``.

    Args:
        path: of the file.
        parser: of ``examine``, whose flags are the fields.
    """
    values = read_fields(path, _WHAT, "data: shapes")
    flags = {
        action.dest: action
        for action in parser._actions
        if action.option_strings and action.dest not in _NOT_FIELDS
    }
    for name in values:
        if name not in (*flags, "models", "options"):
            remedy = suggestion(name, [*flags, "models", "options"])
            raise InputError(f"{_WHAT} {path} has no field {name!r}. {remedy}")
    models = _models(values.pop("models", None), path)
    words = list(_option_words(values.pop("options", None), path))
    if "out" not in values and (path.parent / "study.json").is_file():
        values["out"] = str(path.parent)
    for name, value in values.items():
        words += _words(flags[name], value, path)
    return words, models


def _models(value: Any, path: Path) -> Models:
    if isinstance(value, str):
        return [value]
    names = list(value.values()) if isinstance(value, Mapping) else value
    right = isinstance(names, list) and names and all(isinstance(n, str) for n in names)
    if not right:
        raise InputError(
            f"models of {_WHAT} {path} must be names, or a mapping of labels to names, got "
            f"{value!r}"
        )
    return {str(k): v for k, v in value.items()} if isinstance(value, Mapping) else value


def _option_words(value: Any, path: Path) -> Iterator[str]:
    """``--set`` for each option of each analysis."""
    options = {} if value is None else value
    if not isinstance(options, dict) or not all(isinstance(o, dict) for o in options.values()):
        raise InputError(
            f"options of {_WHAT} {path} must be options by analysis, such as "
            f"{{fourier: {{profile: radial}}}}, got {value!r}"
        )
    for analysis, settings in options.items():
        for name, setting in settings.items():
            yield f"--set={analysis}.{name}={_text(setting)}"


def _words(action: argparse.Action, value: Any, path: Path) -> list[str]:
    flag = action.option_strings[-1]
    if action.nargs == 0:  # a switch
        if not isinstance(value, bool):
            raise InputError(
                f"{action.dest} of {_WHAT} {path} must be true or false, got {value!r}"
            )
        if action.dest == "pretrained":
            return ["--pretrained" if value else "--random-weights"]
        return [flag] if value else []
    if isinstance(value, dict):
        raise InputError(
            f"{action.dest} of {_WHAT} {path} must be a value or a list, got {value!r}"
        )
    separator = "x" if action.dest == "size" else ","
    return [f"{flag}={_text(value, separator)}"]


def _text(value: Any, separator: str = ",") -> str:
    """A value as it is written on the command line."""
    if isinstance(value, list):
        return separator.join(_text(item) for item in value)
    return "none" if value is None else str(value)


def first_file(words: Sequence[str]) -> Path | None:
    """The study file that follows the command ``examine``, if one does."""
    named = len(words) > 1 and words[0] == "examine" and is_study_file(words[1])
    return Path(words[1]) if named else None


def in_file(error: InputError, path: Path, flags: Sequence[str]) -> InputError:
    """The error of a value, which names the field of the file unless it is one of `flags`."""
    named = re.match(r"(--([\w-]+))( must .*?)\. `visprism", str(error), re.DOTALL)
    if named is None or any(word.partition("=")[0] == named[1] for word in flags):
        return error
    return InputError(f"{named[2].replace('-', '_')} of {_WHAT} {path}{named[3]}")
