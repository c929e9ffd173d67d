"""``visprism examine FILE.yaml``: the arguments that a study file states."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from visprism.core.errors import InputError
from visprism.core.files import read_fields
from visprism.core.registry import suggestion

_WHAT = "the study file"
_NOT_FIELDS = ("help", "set", "json", "fresh")  # of a call, or written otherwise


def first_file(words: Sequence[str]) -> Path | None:
    """The study file that follows the command ``examine``, if one does."""
    named = len(words) > 1 and words[0] == "examine" and words[1].endswith((".yaml", ".yml"))
    return Path(words[1]) if named else None


def with_file(
    path: Path, parser: argparse.ArgumentParser, given: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments of a study file and of the command line, which win.

    ``out`` is relative to the folder of the file and lies inside it, so that a file of somebody
    else writes nowhere else. A file in the folder of a study, as `examine` writes it, has that
    folder for ``out``.

    Args:
        path: of the file.
        parser: of ``examine``, whose flags are the fields.
        given: values of the command line; its only model is the file.
    """
    if len(given["models"]) > 1:
        raise InputError(f"a study file must be the only model, got also {given['models'][1]}")
    stated: dict[str, Any] = {"models": None, "set": ()}
    if (path.parent / "study.json").is_file():
        stated["out"] = path.parent
    actions = {a.dest: a for a in parser._actions if a.option_strings}
    names = [*(name for name in actions if name not in _NOT_FIELDS), "models", "options"]
    for name, value in read_fields(path, _WHAT, "data: shapes").items():
        if name not in names:
            raise InputError(f"{_WHAT} {path} has no field {name!r}. {suggestion(name, names)}")
        if name == "options":
            stated["set"] = tuple(_options(value, path))
        elif name == "out":
            stated["out"] = given.get("out") or _inside(path, value)
        else:
            stated[name] = value if name == "models" else _value(actions[name], value, path)
    values = {**stated, **given, "models": _models(stated["models"], path)}
    missing = [f"--{name}" for name in ("data", "out") if name not in values]
    if missing:
        raise InputError(f"{' and '.join(missing)} must be given, or be a field of {path}")
    return values | {"set": (*stated["set"], *given.get("set", ()))}


def _inside(path: Path, out: Any) -> Path:
    folder = path.parent / str(out)
    if not folder.resolve().is_relative_to(path.parent.resolve()):
        raise InputError(
            f"out of {_WHAT} {path} must be inside the file's folder, got {out!r}. "
            "Name another folder on the command line, by --out."
        )
    return folder


def _models(value: Any, path: Path) -> dict[str, str] | tuple[str, ...]:
    names = {"": value} if isinstance(value, str) else value
    names = list(names.values()) if isinstance(names, Mapping) else names
    if not (isinstance(names, list) and names and all(isinstance(n, str) for n in names)):
        raise InputError(
            f"models of {_WHAT} {path} must be names, or a mapping of labels to names, got "
            f"{value!r}"
        )
    return {str(k): v for k, v in value.items()} if isinstance(value, dict) else tuple(names)


def _options(value: Any, path: Path) -> Iterator[str]:
    """The words that `--set` takes."""
    options = {} if value is None else value
    if not isinstance(options, dict) or not all(isinstance(o, dict) for o in options.values()):
        raise InputError(
            f"options of {_WHAT} {path} must be options by analysis, such as "
            f"{{fourier: {{profile: radial}}}}, got {value!r}"
        )
    for analysis, settings in options.items():
        for name, setting in settings.items():
            yield f"{analysis}.{name}={_text(setting)}"


def _value(action: argparse.Action, value: Any, path: Path) -> Any:
    """A value in the type of its flag."""
    if action.nargs == 0:  # a switch
        if not isinstance(value, bool):
            raise InputError(
                f"{action.dest} of {_WHAT} {path} must be true or false, got {value!r}"
            )
        return value
    if isinstance(value, dict):
        raise InputError(
            f"{action.dest} of {_WHAT} {path} must be a value or a list, got {value!r}"
        )
    read: Any = action.type
    try:
        return read(_text(value, "x" if action.dest == "size" else ","))
    except argparse.ArgumentTypeError as error:
        _, _, constraint = str(error).partition("must ")
        raise InputError(f"{action.dest} of {_WHAT} {path} must {constraint}") from error


def _text(value: Any, separator: str = ",") -> str:
    if isinstance(value, list):
        return separator.join(_text(item) for item in value)
    return "none" if value is None else str(value)
