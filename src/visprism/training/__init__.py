"""Training: recipes, and the loop that follows them."""

from visprism.training import recipes  # noqa: F401 (they register)
from visprism.training.following import Logger, make_loggers
from visprism.training.history import History
from visprism.training.job import Job
from visprism.training.loop import fit
from visprism.training.recipe import RECIPES, Recipe
from visprism.training.running import train
from visprism.training.settings import as_yaml, changed, find_recipe

__all__ = [
    "RECIPES",
    "History",
    "Job",
    "Logger",
    "Recipe",
    "as_yaml",
    "changed",
    "find_recipe",
    "fit",
    "make_loggers",
    "train",
]
