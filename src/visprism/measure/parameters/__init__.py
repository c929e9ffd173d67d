"""The loss as a function of the parameters: values, derivatives, sharpness."""

from visprism.measure.parameters.losses import Loss, cross_entropy, smoothed_cross_entropy
from visprism.measure.parameters.objective import Objective
from visprism.measure.parameters.products import Matrix, Products
from visprism.measure.parameters.selection import Selection
from visprism.measure.parameters.sharpness import Sharpness, sharpness

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
