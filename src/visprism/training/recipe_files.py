"""Recipes by name and in YAML files, and field names of earlier versions."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from visprism.core.errors import InputError
from visprism.core.files import read_fields, yaml_text
from visprism.training.recipe import RECIPES, Recipe

# Fields of version 0.1 by their names there; their values mean the same.
FORMER_NAMES = {
    "decay": "decay_params",
    "factor": "lr_decay",
    "parts": "grad_accum_steps",
    "sam": "sam_rho",
    "distil": "distillation",
    "distil_weight": "distillation_weight",
    "evaluate": "eval_every",
    "images": "limit",
    "snapshots": "snapshot_every",
}
_PLACEHOLDER = Recipe(epochs=10**6, batch_size=10**6, lr=1.0)  # of fields that must be given


def load_recipe(text: str) -> Recipe:
    """The registered recipe of this name, or the recipe in this YAML file."""
    if text.endswith((".yaml", ".yml")):
        return read_recipe(Path(text))
    return RECIPES[text]()


def recipe_fields(recipe: Recipe) -> dict[str, Any]:
    """All fields by name, with those of the augmentation on the same level; tuples as lists."""
    values = asdict(recipe)
    values |= values.pop("augmentation")
    return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}


def upgraded_fields(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Fields that an earlier version wrote, under their present names.

    It reads recipe files, the metadata of checkpoints (where the augmentation is a separate
    field) and training checkpoints.
    """
    values = dict(stored)
    augmentation = values.pop("augmentation", None)
    if isinstance(augmentation, Mapping):
        values |= augmentation
    for former, name in FORMER_NAMES.items():
        if former in values and name in values:
            raise InputError(f"a recipe must name {name} once, got also {former}")
    return {FORMER_NAMES.get(name, name): value for name, value in values.items()}


def recipe_from_fields(stored: Mapping[str, Any]) -> Recipe:
    """The recipe whose fields `recipe_fields`, a checkpoint or an earlier version wrote.

    Fields that are not stored have their defaults.
    """
    values = upgraded_fields(stored)
    missing = [name for name in ("epochs", "batch_size", "lr") if name not in values]
    if missing:
        raise InputError(f"a recipe must have epochs, batch_size and lr, got no {missing[0]}")
    return _PLACEHOLDER.replace(**values)


def complete_fields(stored: Mapping[str, Any]) -> dict[str, Any]:
    """`upgraded_fields`, with defaults of fields that the earlier version did not have."""
    defaults = recipe_fields(_PLACEHOLDER)
    return {**defaults, **upgraded_fields(stored)}


def read_recipe(path: Path) -> Recipe:
    """The recipe in a YAML file of ``field: value`` lines.

    With ``base: NAME`` the fields change a registered recipe.
    """
    values = read_fields(path, "the recipe", "lr: 1e-3")
    base = values.pop("base", None)
    if base is not None:
        if not isinstance(base, str):
            raise InputError(
                f"base must be the name of a recipe, got {base!r} in the recipe {path}"
            )
        return RECIPES[base]().replace(**upgraded_fields(values))
    try:
        return recipe_from_fields(values)
    except InputError as error:
        raise InputError(f"the recipe {path} is not valid: {error}") from error


def as_yaml(recipe: Recipe) -> str:
    """The recipe as text that `read_recipe` reads, with every field."""
    return yaml_text(recipe_fields(recipe))
