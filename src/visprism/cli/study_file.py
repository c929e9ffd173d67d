"""``visprism examine FILE.yaml``: the words of the command line that a study file states."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from visprism.core.errors import InputError
from visprism.core.files import read_fields
from visprism.core.registry import suggestion

_WHAT = "the study file"


def first_file(words: Sequence[str]) -> Path | None:
    """The study file that follows the command ``examine``, if one does."""
    named = len(words) > 1 and words[0] == "examine" and words[1].endswith((".yaml", ".yml"))
    return Path(words[1]) if named else None


def words_of(path: Path, flags: Sequence[str]) -> list[str]:
    """The words of a study file: its models, its fields as flags, and its options.

    ``out`` is relative to the folder of the file and lies inside it, so that a file of somebody
    else writes nowhere else. A file in the folder of a study, as `examine` writes it, has that
    folder for ``out``.

    Args:
        path: of the file.
        flags: of the command, which are what a file may state.
    """
    fields = read_fields(path, _WHAT, "data: shapes")
    if (path.parent / "study.json").is_file():
        fields = {"out": "."} | fields
    for name in fields:
        if name not in ("models", "options") and _flag(name) not in flags:
            known = ["models", "options", *(f[2:].replace("-", "_") for f in flags)]
            raise InputError(f"{_WHAT} {path} has no field {name!r}. {suggestion(name, known)}")
    models = fields.pop("models", None) or []
    if isinstance(models, Mapping):
        words = [f'"{label}"={_text(model)}' for label, model in models.items()]
    else:
        words = [_text(model) for model in (models if isinstance(models, list) else [models])]
    words += _options(fields.pop("options", None) or {}, path)
    for name, value in fields.items():
        if name == "out":
            words.append(f"--out={_inside(path, value)}")
        elif name == "pretrained" and value is False:
            words.append("--random-weights")
        elif value is True:
            words.append(_flag(name))
        elif value is not None and value is not False:
            text = _text(value, "x" if name == "size" else ",")
            words.append(f"{_flag(name)}={text}")
    return words


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _inside(path: Path, out: Any) -> Path:
    folder = path.parent / str(out)
    if not folder.resolve().is_relative_to(path.parent.resolve()):
        raise InputError(
            f"out of {_WHAT} {path} must be inside the file's folder, got {out!r}. "
            "Take it out of the file and name the folder on the command line, by --out."
        )
    return folder


def _options(options: Any, path: Path) -> Iterator[str]:
    if not isinstance(options, dict) or not all(isinstance(o, dict) for o in options.values()):
        raise InputError(
            f"options of {_WHAT} {path} must be options by analysis, such as "
            f"{{fourier: {{profile: radial}}}}, got {options!r}"
        )
    for analysis, settings in options.items():
        for name, setting in settings.items():
            yield f"--set={analysis}.{name}={_text(setting)}"


def _text(value: Any, separator: str = ",") -> str:
    if isinstance(value, list):
        return separator.join(_text(item) for item in value)
    return "none" if value is None else str(value)
