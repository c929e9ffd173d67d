"""The study file: the settings of a study as YAML, from which it can be run again."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from visprism.core.files import write_text, yaml_text
from visprism.core.options import Effort, option_values
from visprism.core.run import Run
from visprism.kit.analysis import ANALYSES, Analysis
from visprism.kit.inputs import DataName, DataOptions

STUDY_FILE = "study.yaml"


def study_fields(
    models: Any, data: Any, train_data: Any, images: DataOptions, run: Run
) -> dict[str, Any] | None:
    """What is measured, as `examine` takes it, and how; fields with their default are left out.

    None where a model or data is an object, which no file can name.
    """
    names = _model_names(models)
    if (
        names is None
        or not isinstance(data, DataName)
        or not isinstance(train_data, DataName | None)
    ):
        return None
    defaults = {**asdict(DataOptions()), "seed": Run().seed, **asdict(Run().compute)}
    values = {**asdict(images), "seed": run.seed, **asdict(run.compute)}
    changed = {name: value for name, value in values.items() if value != defaults[name]}
    data, train_data = str(data), train_data and str(train_data)
    return {"models": names, "data": data, "train_data": train_data, **changed}


def analysis_fields(
    chosen: Sequence[Analysis], effort: Effort, *, named: bool
) -> dict[str, Any]:
    """The analyses, if the caller named them, and options without their value at the effort."""
    options = {}
    for analysis in chosen:
        (default,) = ANALYSES.chosen([type(analysis)], effort=effort)
        values, defaults = option_values(analysis), option_values(default)
        options[analysis.name] = {n: v for n, v in values.items() if v != defaults[n]}
    return {
        "analyses": [a.name for a in chosen] if named else None,
        "options": {name: changes for name, changes in options.items() if changes},
    }


def write_study_file(folder: Path, values: Mapping[str, Any]) -> None:
    """Write the file into the folder of the study."""
    head = (
        "# In the folder in which the study was started, `visprism examine` with the path of\n"
        "# this file resumes it; --out names another folder for the results.\n"
    )
    plain = {
        k: list(v) if isinstance(v, tuple) else v for k, v in values.items() if v or v is False
    }
    write_text(folder / STUDY_FILE, head + yaml_text(plain))


def _model_names(models: Any) -> list[str] | dict[str, str] | None:
    if isinstance(models, str):
        return [models]
    if isinstance(models, Mapping):
        named = {str(name): model for name, model in models.items()}
        return named if all(isinstance(model, str) for model in named.values()) else None
    if isinstance(models, Sequence) and all(isinstance(model, str) for model in models):
        return list(models)
    return None
