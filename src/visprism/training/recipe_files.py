"""Recipes by name and in YAML files."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from visprism.core.errors import InputError
from visprism.core.files import read_fields, yaml_text
from visprism.training.recipe import RECIPES, Recipe

_PLACEHOLDER = Recipe(epochs=10**6, batch_size=10**6, lr=1.0)  # of fields that must be given


def load_recipe(text: str) -> Recipe:
    """The registered recipe of this name, or the recipe in this YAML file."""
    if text.endswith((".yaml", ".yml")):
        return read_recipe(Path(text))
    return RECIPES[text]()


def recipe_fields(recipe: Recipe) -> dict[str, Any]:
    """All fields by name, with the augmentation's on the same level; tuples as lists."""
    return flat_fields(asdict(recipe))


def flat_fields(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Fields by name, as `recipe_fields`, from the metadata of a checkpoint."""
    values = dict(stored)
    augmentation = values.pop("augmentation", None)
    values |= augmentation if isinstance(augmentation, Mapping) else {}
    return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}


def recipe_from_fields(stored: Mapping[str, Any]) -> Recipe:
    """The recipe with these fields, as in a checkpoint; other fields have their defaults."""
    values = flat_fields(stored)
    missing = [name for name in ("epochs", "batch_size", "lr") if name not in values]
    if missing:
        raise InputError(f"a recipe must have epochs, batch_size and lr, got no {missing[0]}")
    return _PLACEHOLDER.replace(**values)


def read_recipe(path: Path) -> Recipe:
    """The recipe in a YAML file of ``field: value`` lines.

    With ``base: NAME`` the fields change a registered recipe.
    """
    values = read_fields(path, "the recipe", "lr: 1e-3")
    base = values.pop("base", None)
    if base is not None:
        return RECIPES[str(base)]().replace(**values)
    try:
        return recipe_from_fields(values)
    except InputError as error:
        raise InputError(f"the recipe {path} is not valid: {error}") from error


def as_yaml(recipe: Recipe) -> str:
    """The recipe as text that `read_recipe` reads, with every field."""
    return yaml_text(recipe_fields(recipe))
