"""The study file: the settings of a study as YAML, from which it can be run again."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from visprism.analyses.base import Analysis
from visprism.core.files import write_text, yaml_text
from visprism.core.options import option_values
from visprism.core.run import Run
from visprism.study.subjects import DataOptions

STUDY_FILE = "study.yaml"


def study_fields(
    models: Any,
    data: Any,
    train_data: Any,
    *,
    chosen: Sequence[Analysis],
    named: bool,
    minutes: int | float | None,
    images: DataOptions,
    pretrained: bool,
    run: Run,
) -> dict[str, Any] | None:
    """The settings by field; None where a model or data is an object, which no file can name.

    Fields with their default are left out, but for `minutes`.

    Args:
        models: as `examine` takes them.
        data: the images.
        train_data: those of the training loss, or None.
        chosen: the analyses with their options.
        named: whether the caller named them; otherwise all that apply are chosen again.
        minutes: time budget, or None.
        images: how images are chosen.
        pretrained: whether published weights are loaded.
        run: seed, device and precision.
    """
    names = _model_names(models)
    if names is None or not isinstance(data, str) or not isinstance(train_data, str | None):
        return None
    settings = {a.name: _changed(a) for a in chosen}
    values: dict[str, Any] = {
        "models": names,
        "data": data,
        "train_data": train_data,
        **{k: v for k, v in asdict(images).items() if v != _default(DataOptions, k)},
        "analyses": [a.name for a in chosen] if named else None,
        "options": {name: changes for name, changes in settings.items() if changes},
        "pretrained": pretrained,
        "seed": run.seed,
        "device": run.compute.device,
        "precision": run.compute.precision,
    }
    defaults = {"seed": Run().seed, **asdict(Run().compute)}
    values = {k: v for k, v in values.items() if v and v != defaults.get(k)}
    plain = {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}
    return {**plain, "minutes": minutes}


def write_study_file(folder: Path, values: Mapping[str, Any]) -> None:
    """Write the file into the folder of the study.

    Raises:
        OutputError: if it cannot be written.
    """
    head = (
        "# In the folder in which the study was started, `visprism examine` with the path of\n"
        "# this file resumes it; --out names another folder for the results.\n"
    )
    write_text(folder / STUDY_FILE, head + yaml_text(dict(values)))


def _model_names(models: Any) -> list[str] | dict[str, str] | None:
    if isinstance(models, str):
        return [models]
    if isinstance(models, Mapping):
        named = {str(name): model for name, model in models.items()}
        return named if all(isinstance(model, str) for model in named.values()) else None
    if isinstance(models, Sequence) and all(isinstance(model, str) for model in models):
        return list(models)
    return None


def _changed(analysis: Analysis) -> dict[str, Any]:
    """The options that differ from their defaults, as YAML can hold them."""
    values, defaults = option_values(analysis), option_values(type(analysis)())
    return {name: value for name, value in values.items() if value != defaults[name]}


def _default(kind: type, name: str) -> Any:
    return next(field.default for field in fields(kind) if field.name == name)
