"""What the forms offer: analyses with their options, models, checkpoints, data."""

from functools import cache
from typing import Any

from visprism.analyses import ANALYSES, Needs
from visprism.app.settings import Settings
from visprism.app.study_request import form_options
from visprism.core.options import Option
from visprism.data.corruptions import CORRUPTIONS
from visprism.analyses.predictions.bands import BAND_CENTERS


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
        "default": analysis.default,
        "source": analysis.source,
        "trained": Needs.TARGETS in analysis.needs,
        "options": [_option(o) for o in form_options(analysis).values()],
    }


def _option(declared: Option) -> dict[str, Any]:
    value, choices = declared.default, declared.choices
    if declared.metavar.endswith(",..."):  # several of them, separated by commas
        choices = None
    values = value if isinstance(value, tuple | list) else (value,)
    return {
        "name": declared.name,
        "help": declared.help,
        "constraint": declared.constraint,
        "type": "flag" if declared.type is bool else "text",
        "choices": None if choices is None else list(map(str, choices)),
        "default": "none" if value is None else ",".join(map(str, values)),
    }


def _models() -> dict[str, list[str]]:
    """Names of models by source; first those with trained weights inside the package."""
    import timm
    from torchvision import models as torchvision_models

    from visprism.models import MODELS
    from visprism.models.pretrained import pretrained_cards
    from visprism.models.timm_entries import PREFIX

    torchvision = torchvision_models.list_models(module=torchvision_models)
    return {
        "trained": sorted(pretrained_cards()),
        "zoo": list(MODELS),
        "timm": [f"timm:{name}" for name in timm.list_models(exclude_filters=f"{PREFIX}*")],
        "torchvision": [f"torchvision:{name}" for name in torchvision],
    }
