"""The study file: the request of a study as YAML, from which it can be run again."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from visprism.core.files import write_text, yaml_text
from visprism.core.options import Effort, option_values, options_of
from visprism.core.request import StudyOptions
from visprism.core.run import Run
from visprism.kit.analysis import ANALYSES, Analysis
from visprism.kit.inputs import DataName
from visprism.study.request import StudyRequest

STUDY_FILE = "study.yaml"
_HEAD = """\
# In the folder in which the study was started, `visprism examine` with the path of
# this file resumes it; --out names another folder for the results.
"""


def write_study_file(
    folder: Path, request: StudyRequest, chosen: Sequence[Analysis], run: Run
) -> None:
    """Write what is measured, and how; options that have their default are left out.

    Nothing is written where a model, data or the preprocessing is an object, which no file can
    name.
    """
    models = _model_names(request.models)
    named = (request.data, request.train_data or "")
    if models is None or not all(isinstance(data, DataName) for data in named):
        return
    if request.preprocessing is not None:
        return
    values = {one.name: getattr(request, one.name) for one in fields(StudyOptions)}
    values |= {"seed": run.seed, "precision": run.compute.precision, "fresh": False}
    values |= {"device": run.compute.device} if run.compute.device else {}
    defaults = {name: declared.default for name, declared in options_of(StudyOptions).items()}
    changed = {name: value for name, value in values.items() if value != defaults[name]}
    if request.train_data is not None:
        changed["train_data"] = str(request.train_data)
    content = {"models": models, "data": str(request.data), **changed, "effort": request.effort}
    content |= _analyses(chosen, request.effort, named=request.analyses is not None)
    plain = {k: list(v) if isinstance(v, tuple) else v for k, v in content.items()}
    write_text(folder / STUDY_FILE, _HEAD + yaml_text(plain))


def _analyses(chosen: Sequence[Analysis], effort: Effort, *, named: bool) -> dict[str, Any]:
    """The analyses, if the caller named them, and options without their value at the effort."""
    options = {}
    for analysis in chosen:
        (default,) = ANALYSES.chosen([type(analysis)], effort=effort)
        values, defaults = option_values(analysis), option_values(default)
        changes = {n: v for n, v in values.items() if v != defaults[n]}
        options |= {analysis.name: changes} if changes else {}
    names = {"analyses": [a.name for a in chosen]} if named else {}
    return names | ({"options": options} if options else {})


def _model_names(models: Any) -> list[str] | dict[str, str | list[str]] | None:
    if isinstance(models, str):
        return [models]
    if isinstance(models, Mapping):
        named = {str(n): list(m) if isinstance(m, tuple) else m for n, m in models.items()}
        each = [x for m in named.values() for x in (m if isinstance(m, list) else [m])]
        return named if all(isinstance(model, str) for model in each) else None
    if isinstance(models, Sequence) and all(isinstance(model, str) for model in models):
        return list(models)
    return None
