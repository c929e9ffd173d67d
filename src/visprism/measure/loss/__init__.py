"""The loss as a function of the parameters: values, derivatives, sharpness."""

from visprism.measure.loss.losses import Loss, cross_entropy, smoothed_cross_entropy
from visprism.measure.loss.objective import Objective
from visprism.measure.loss.parameter_selection import Selection
from visprism.measure.loss.products import Matrix, Products
from visprism.measure.loss.sharpness import Sharpness, sharpness

__all__ = [
    "Loss",
    "Matrix",
    "Objective",
    "Products",
    "Selection",
    "Sharpness",
    "cross_entropy",
    "sharpness",
    "smoothed_cross_entropy",
]
