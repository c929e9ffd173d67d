"""The loss as a function of the parameters: values, derivatives, sharpness."""

from visprism.measure.loss.losses import Loss, cross_entropy, smoothed_cross_entropy
from visprism.measure.loss.objective import Objective
from visprism.measure.loss.parameter_selection import Selection
from visprism.measure.loss.products import Matrix, Products, gauss_newton_product, hvp
from visprism.measure.loss.sharpness import mini_batch_sharpness, sharpness
from visprism.results.loss import Sharpness

__all__ = [
    "Loss",
    "Matrix",
    "Objective",
    "Products",
    "Selection",
    "Sharpness",
    "cross_entropy",
    "gauss_newton_product",
    "hvp",
    "mini_batch_sharpness",
    "sharpness",
    "smoothed_cross_entropy",
]
