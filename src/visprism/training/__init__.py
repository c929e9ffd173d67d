"""Training: recipes, and the loop that follows them."""

from visprism.training import recipes  # noqa: F401 (they register)
from visprism.training.loop import History, Normalize, accuracy, fit
from visprism.training.recipe import RECIPES, Recipe

__all__ = ["RECIPES", "History", "Normalize", "Recipe", "accuracy", "fit"]
