"""Forms: what they offer, and the study that one asks for, checked and safe to run."""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Generic, TypeVar, get_args

import msgspec

from visprism.analyses.predictions.bands import BAND_CENTERS
from visprism.app.settings import Settings
from visprism.core.errors import InputError
from visprism.core.options import EFFORTS, Option, options_of
from visprism.core.registry import suggestion
from visprism.core.request import StudyOptions
from visprism.images.corruptions.corrupt import CORRUPTIONS
from visprism.kit.analysis import ANALYSES
from visprism.kit.needs import Needs
from visprism.models.loading import check_model
from visprism.models.sources import stored_model_name
from visprism.models.spec import ModelSpec

_LONGEST = 200  # characters of a name
_MOST_IMAGES = 100_000


def _default(*groups: str, rank: int = 9) -> tuple[str, ...]:
    """The default analyses of some groups up to a rank, with anatomy and accuracy."""
    chosen = {name: ANALYSES[name] for name in ANALYSES if ANALYSES[name].default}
    always = ("anatomy", "calibration")
    of_groups = (
        n for n, a in chosen.items() if (not groups or a.group in groups) and a.rank <= rank
    )
    return tuple(dict.fromkeys((*always, *of_groups)))


# Analyses by what a form calls them; the first is the default. "quick look" is what shares one
# pass, "everything" what `examine` measures by default.
PRESETS: Mapping[str, tuple[str, ...]] = {
    "quick look": _default(rank=1),
    "feature maps": _default("feature maps", "attention"),
    "robustness": _default("predictions", "robustness"),
    "loss": _default("loss"),
    "everything": _default(),
}


Words = Annotated[str, msgspec.Meta(max_length=_LONGEST)]


class ModelForm(msgspec.Struct):
    """A model: its name, or one of `Settings.checkpoint_files`, or both."""

    name: Words | None = None
    checkpoint: Words | None = None


Model = TypeVar("Model")


def _fields() -> Iterator[tuple[str, Any, Any]]:
    """Name, type and default of each option of a study that the form has."""
    for name, declared in options_of(StudyOptions).items():
        if declared.info.form:
            limits: dict[str, Any] = {"ge": declared.info.minimum, "gt": declared.info.above}
            limits["le"] = _MOST_IMAGES if name == "limit" else None
            bounds = msgspec.Meta(**{k: v for k, v in limits.items() if v is not None})
            kinds = get_args(declared.type) if NoneType in get_args(declared.type) else ()
            number = next((k for k in kinds if k is not NoneType), declared.type)
            bounded = Annotated[number, bounds] if number in (int, float) else number
            yield name, bounded | None if kinds else bounded, declared.default


FormOptions = msgspec.defstruct("FormOptions", _fields(), kw_only=True)


class FormRequest(FormOptions, Generic[Model], kw_only=True, forbid_unknown_fields=True):
    """The request of a study, as JSON can hold it: what the form of the app sends."""

    models: list[Model]
    data: str
    analyses: list[str]
    title: Words | None = None
    options: dict[str, dict[str, Words]] = msgspec.field(default_factory=dict)

    def chosen(self) -> dict[str, Any]:
        """The options of `visprism.core.request` with their values."""
        return {name: getattr(self, name) for name in FormOptions.__struct_fields__}


Form = FormRequest[ModelForm]  # as it is sent, and kept in request.json
Named = FormRequest[str]  # with names as `load_model` and `load_data` take them


def stated(kind: Any, values: Any) -> Any:
    """The values of a request in their declared types."""
    try:
        return msgspec.convert(values, kind)
    except (ValueError, RecursionError) as error:
        parts = re.fullmatch(r"Expected (.*) - at `\$\.(.*)`", str(error))
        if parts is None:
            raise InputError(f"a request must be what the form sends: {error}") from error
        what = re.sub(r"`(\w+)( \| null)?`", lambda k: _NOUNS.get(k[1], k[1]), parts[1])
        raise InputError(f"{parts[2]} must be {what}") from error


_NOUNS = {"int": "an integer", "float": "a number", "str": "a text", "array": "a list"}


def named(form: Form, settings: Settings) -> Named:
    """The request of a form, checked."""
    if not 1 <= len(form.models) <= settings.limits.models:
        raise InputError(
            f"models must be 1 to {settings.limits.models}, got {len(form.models)}"
        )
    models = [model_name(model, settings) for model in form.models]
    parsed_analyses(form.analyses, form.options)
    minutes, most = form.chosen()["minutes"], settings.limits.minutes
    if minutes is not None and minutes > most:
        raise InputError(f"minutes must be at most {most:g}, got {minutes}")
    values: dict[str, Any] = msgspec.structs.asdict(form)
    values["models"], values["data"] = models, data_name(form.data, settings)
    values["title"] = form.title or " and ".join(map(_label, models))
    return Named(**values)


def model_name(model: ModelForm, settings: Settings) -> str:
    """A name for `load_model`.

    Only registered architectures are built, with numbers, flags and words as options; a
    checkpoint is one of `Settings.checkpoint_files`.
    """
    name, checkpoint = model.name or "", model.checkpoint
    files = settings.checkpoint_files() if checkpoint else {}
    if checkpoint:
        if checkpoint not in files:
            raise InputError(f"checkpoint must be one of the list, got {checkpoint!r}")
        if not name and files[checkpoint].suffix == ".safetensors":
            return str(files[checkpoint])  # its metadata name the model
    try:
        safe = stored_model_name(name, Path("request")) == name
    except InputError:
        safe = False
    file = name.endswith(".safetensors")  # which `load_model` reads from the current folder
    if not safe or file or ModelSpec.parse(name).source not in ("zoo", "timm", "torchvision"):
        raise InputError(
            "name must be a model of the zoo, timm or torchvision, with numbers, flags "
            f"and words as options, got {name!r}. Choose a checkpoint from the list."
        )
    check_model(name)
    return f"{name}@{files[checkpoint]}" if checkpoint else name


def data_name(data: str, settings: Settings) -> str:
    """A name for `load_data` from the form's name."""
    names = settings.data_sets()
    if data not in names:
        raise InputError(f"data must be one of {', '.join(names)}, got {data!r}")
    return names[data]


def parsed_analyses(
    names: Iterable[str], options: Mapping[str, Mapping[str, str]]
) -> dict[str, dict[str, Any]]:
    """The options of each analysis in their types."""
    parsed: dict[str, dict[str, Any]] = {}
    for analysis, values in options.items():
        available = form_options(ANALYSES[analysis])
        for name, text in values.items():
            if name not in available:
                raise InputError(
                    f"{analysis} has no option {name!r} in the app. "
                    f"{suggestion(name, list(available))}"
                )
            parsed.setdefault(analysis, {})[name] = available[name].parse(text)
    ANALYSES.chosen(list(names), parsed)
    return parsed


def form_options(analysis: type) -> dict[str, Option]:
    """The options of an analysis without those that name files or data."""
    return {
        name: declared
        for name, declared in options_of(analysis).items()
        if not declared.names_files
    }


def _label(name: str) -> str:
    spec = ModelSpec.parse(name)
    return spec.label if spec.checkpoint is None else f"{spec.label} {spec.checkpoint.stem}"


def catalog(settings: Settings) -> dict[str, Any]:
    """Everything that a form needs, as JSON can hold it."""
    return {
        **_fixed(),
        "data": list(settings.data_sets()),
        "checkpoints": list(settings.checkpoint_files()),
        "limits": {
            "models": settings.limits.models,
            "minutes": settings.limits.minutes,
            "live_images": settings.limits.live_images,
        },
    }


@cache
def _fixed() -> dict[str, Any]:
    return {
        "presets": PRESETS,
        "analyses": [_analysis(name) for name in ANALYSES],
        "models": _models(),
        "corruptions": list(CORRUPTIONS),
        "bands": list(BAND_CENTERS),
    }


def _analysis(name: str) -> dict[str, Any]:
    analysis = ANALYSES[name]
    return {
        "name": name,
        "group": analysis.group,
        "help": (analysis.__doc__ or "").partition("\n")[0],
        "source": analysis.source,
        "trained": bool(analysis.needs & Needs.TRAINED),
        "options": [_option(o) for o in form_options(analysis).values()],
    }


def _option(declared: Option) -> dict[str, Any]:
    choices = declared.choices
    if declared.metavar.endswith(",..."):  # several of them, separated by commas
        choices = None
    return {
        "name": declared.name,
        "help": declared.help,
        "constraint": declared.constraint,
        "type": "flag" if declared.type is bool else "text",
        "choices": None if choices is None else list(map(str, choices)),
        "defaults": {
            effort: _text(declared.info.by_effort.get(effort, declared.default))
            for effort in EFFORTS
        },
    }


def _text(value: Any) -> str:
    """A value as `Option.parse` reads it."""
    values = value if isinstance(value, tuple | list) else (value,)
    return "none" if value is None else ",".join(map(str, values))


def _models() -> dict[str, list[str]]:
    """Names of models by source; first those with trained weights inside the package."""
    import timm
    from torchvision import models as torchvision_models

    from visprism.models.pretrained import pretrained_cards
    from visprism.models.zoo_registry import MODELS

    torchvision = torchvision_models.list_models(module=torchvision_models)
    return {
        "trained": sorted(pretrained_cards()),
        "zoo": list(MODELS),
        "timm": [f"timm:{name}" for name in timm.list_models()],
        "torchvision": [f"torchvision:{name}" for name in torchvision],
    }
