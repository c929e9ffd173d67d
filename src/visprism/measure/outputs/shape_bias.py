"""Shape bias: whether a model goes by an object's shape or by its texture.

Source: Geirhos et al. (2019), ImageNet-trained CNNs are biased towards texture; increasing
shape bias improves accuracy and robustness.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from visprism.core.errors import InputError
from visprism.measure.outputs.predictions import Predictions
from visprism.measure.outputs.wilson import wilson
from visprism.results.base import Result, column, result_type

NO_CUE = -1  # the texture of an image that has none


@result_type("shape-bias")
class ShapeBias(Result):
    """Decisions on images whose shape and texture differ, for each shape and then for all."""

    category: np.ndarray = column("Shape", "", "of the shape; 'all'")
    images: np.ndarray = column("Images", "", "whose shape and texture differ")
    shape_decisions: np.ndarray = column("By shape", "", "answered with the class of the shape")
    texture_decisions: np.ndarray = column("By texture", "", "with that of the texture")
    bias: np.ndarray = column("Shape bias", "", "shape decisions over both; NaN without any")
    low: np.ndarray = column("Low", "", "95 % Wilson interval of the bias")
    high: np.ndarray = column("High")
    accuracy: np.ndarray = column(
        "Accuracy by shape", "", "share of shape decisions among all images"
    )

    def sentences(self) -> list[str]:
        """What was found, with its numbers."""
        *_, whole = range(len(self))
        decided = self.shape_decisions[whole] + self.texture_decisions[whole]
        if not decided:
            return [f"None of {self.images[whole]} images is named by its shape or texture"]
        doubt = ""
        named, chance = decided / self.images[whole], 2 / whole if whole else 1.0
        if named <= chance:
            doubt = (
                f", no more than by chance ({chance:.1%}): is the model one of these classes?"
            )
        return [
            f"{self.bias[whole]:.1%} of {decided} decisions are for the shape (95 %: "
            f"{self.low[whole]:.1%} to {self.high[whole]:.1%}), the others for the texture; "
            f"{named:.1%} of the images are named by either{doubt}"
        ]


def shape_bias(
    predictions: Predictions,
    textures: Int64[np.ndarray, " n"],
    categories: Sequence[str],
) -> ShapeBias:
    """The share of decisions for the shape among those for the shape or the texture.

    Images show the shape of one category, which is their target, and the texture of another.
    Where they are the same the image is no conflict and does not count, nor does a decision for
    a third category.

    Args:
        predictions: over the categories, see `by_category`; the targets are shapes.
        textures: category of each image's texture.
        categories: their names.

    Raises:
        InputError: if the numbers do not fit, or no image has a conflict.

    Source: Geirhos et al. (2019), sec. 2.4; for the interval Wilson (1927), Probable inference.
    """
    shapes = predictions.targets.numpy()
    textures = np.asarray(textures)
    if predictions.num_classes != len(categories):
        raise InputError(
            f"the model tells {predictions.num_classes} classes apart, the images show "
            f"{len(categories)} categories; give the classes of each category to by_category"
        )
    if textures.shape != shapes.shape:
        raise InputError(
            f"there are {len(textures)} textures for {len(shapes)} images; give one for each"
        )
    if textures.max() >= len(categories):
        raise InputError(
            f"texture {textures.max()} is none of the {len(categories)} categories"
        )
    conflict = (shapes != textures) & (textures != NO_CUE)
    if not conflict.any():
        raise InputError(
            "no image has a shape of one category and a texture of another; take a "
            "cue-conflict set, as 'shapes?cues=conflict' or 'cue_conflict:DIR'"
        )
    decided = predictions.members.double().softmax(-1).mean(0).argmax(1).numpy()
    each = [conflict & (shapes == c) for c in range(len(categories))]
    groups = [(n, rows) for n, rows in zip(categories, each, strict=True) if rows.any()] + [
        ("all", conflict)
    ]
    number = np.array([rows.sum() for _, rows in groups])
    shape = np.array([(decided == shapes)[rows].sum() for _, rows in groups])
    texture = np.array([(decided == textures)[rows].sum() for _, rows in groups])
    low, high = wilson(shape, shape + texture)
    return ShapeBias(
        category=np.array([name for name, _ in groups]),
        images=number,
        shape_decisions=shape,
        texture_decisions=texture,
        bias=_over(shape, shape + texture),
        low=low,
        high=high,
        accuracy=shape / number,
        provenance=predictions.provenance,
    )


def by_category(predictions: Predictions, classes: Sequence[Sequence[int]]) -> Predictions:
    """Predictions over categories, of which each joins several of the model's classes.

    The score of a category is the logarithm of the mean probability of its classes, as Geirhos
    et al. have it. Targets are taken to be categories already.

    Raises:
        InputError: if a category names a class that the model does not have.
    """
    highest = max(max(group) for group in classes)
    if highest >= predictions.members.shape[-1]:
        raise InputError(
            f"class {highest} is none of the model's {predictions.members.shape[-1]}; the "
            "categories are those of another model"
        )
    members = predictions.members.double().log_softmax(-1)
    joined = _joined(members, classes).float()
    return Predictions(joined, predictions.targets, predictions.provenance)


def _joined(logs: Float[Tensor, "s n k"], classes: Sequence[Sequence[int]]) -> Tensor:
    means = [logs[..., list(g)].logsumexp(-1) - np.log(len(g)) for g in classes]
    joined = torch.stack(means, dim=-1)
    return joined if len(joined) > 1 else joined[0]


def _over(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return np.where(whole > 0, part / np.maximum(whole, 1), np.nan)
