"""Training: recipes, and the loop that follows them."""

from visprism.training import recipes  # noqa: F401 (registers them)
from visprism.training.history import History
from visprism.training.job import Job, train
from visprism.training.loggers import Logger, make_loggers
from visprism.training.loop import fit
from visprism.training.recipe import RECIPES, Recipe
from visprism.training.recipe_files import as_yaml, load_recipe, recipe_from_fields

__all__ = [
    "RECIPES",
    "History",
    "Job",
    "Logger",
    "Recipe",
    "as_yaml",
    "fit",
    "load_recipe",
    "make_loggers",
    "recipe_from_fields",
    "train",
]
