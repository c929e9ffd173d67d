"""Training: recipes, and the loop that follows them."""

from visprism.training.loop import History, fit
from visprism.training.recipe import RECIPES, Recipe

__all__ = ["RECIPES", "History", "Recipe", "fit"]
