"""Training: recipes, and the loop that follows them."""

from visprism.training import recipes  # noqa: F401 (they register)
from visprism.training.history import History
from visprism.training.job import Job
from visprism.training.loggers import Logger, make_loggers
from visprism.training.loop import fit
from visprism.training.recipe import RECIPES, Recipe
from visprism.training.run import train
from visprism.training.settings import as_yaml, changed, load_recipe

__all__ = [
    "RECIPES",
    "History",
    "Job",
    "Logger",
    "Recipe",
    "as_yaml",
    "changed",
    "fit",
    "load_recipe",
    "make_loggers",
    "train",
]
