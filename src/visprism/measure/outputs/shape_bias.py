"""Shape bias: whether a model classifies by the shape or by the texture of an object.

Source: Geirhos et al. (2019), ImageNet-trained CNNs are biased towards texture; increasing
shape bias improves accuracy and robustness.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from visprism.core.errors import InputError
from visprism.core.statistics import FEWEST_DIFFERENT, wilson
from visprism.passes.predictions import Predictions
from visprism.results.per_image import PerImage, linearized_ratio
from visprism.results.shape_bias import SHAPE_BIAS, ShapeBias

NO_CUE = -1  # the texture of an image that has none


def shape_bias(
    predictions: Predictions,
    textures: Int64[np.ndarray, " n"],
    categories: Sequence[str],
) -> ShapeBias:
    """Shape decisions over shape and texture decisions, by category and for all images.

    Images show the shape of one category, which is their target, and the texture of another.
    Images with the same category twice do not count, nor do decisions for a third category.

    Args:
        predictions: over the categories, see `by_category`; the targets are shapes.
        textures: category of the texture of each image, -1 for none.
        categories: names of the categories.

    Source: Geirhos et al. (2019), sec. 2.4; for the interval Wilson (1927), Probable inference.
    """
    shapes = predictions.targets.numpy()
    textures = np.asarray(textures)
    if predictions.num_classes != len(categories):
        raise InputError(
            f"predictions must be over the {len(categories)} categories, got "
            f"{predictions.num_classes} classes. Use by_category."
        )
    if textures.shape != shapes.shape:
        raise InputError(f"textures must be one per image ({len(shapes)}), got {len(textures)}")
    if textures.max() >= len(categories):
        raise InputError(
            f"textures must be below {len(categories)}, the number of categories, got "
            f"{textures.max()}"
        )
    conflict = _conflict(predictions, textures)
    if not conflict.any():
        raise InputError(
            "at least one image must have the shape of one category and the texture of "
            "another, got none. Use a cue-conflict set, such as 'shapes?cues=conflict'."
        )
    decisions = _decisions(predictions)
    by_shape = [conflict & (shapes == c) for c in range(len(categories))]
    groups = [(n, rows) for n, rows in zip(categories, by_shape, strict=True) if rows.any()]
    groups.append(("all", conflict))
    number = np.array([rows.sum() for _, rows in groups])
    shape = np.array([(decisions == shapes)[rows].sum() for _, rows in groups])
    texture = np.array([(decisions == textures)[rows].sum() for _, rows in groups])
    low, high = wilson(shape, shape + texture)
    return ShapeBias(
        category=np.array([name for name, _ in groups]),
        images=number,
        shape_decisions=shape,
        texture_decisions=texture,
        bias=_ratio(shape, shape + texture),
        low=low,
        high=high,
        accuracy=shape / number,
        provenance=predictions.provenance,
    )


def shape_bias_by_image(
    predictions: Predictions, textures: Int64[np.ndarray, " n"]
) -> PerImage:
    """The shape bias, linearized by image, from which paired differences are computed.

    With s_i = 1 for a shape decision and t_i = 1 for a texture decision, the bias is
    r = sum(s_i) / sum(s_i + t_i), and image i has the value
    r + (s_i - r (s_i + t_i)) / mean(s + t), over images with conflicting cues. It is empty for
    fewer than 5 decisions for the shape or 5 for the texture: paired differences of fewer have
    intervals that are too short.

    Args:
        predictions: as for `shape_bias`.
        textures: as for `shape_bias`.
    """
    conflict, decisions = _conflict(predictions, textures), _decisions(predictions)
    shape = (decisions == predictions.targets.numpy())[conflict].astype(np.float64)
    texture = (decisions == textures)[conflict].astype(np.float64)
    enough = min(shape.sum(), texture.sum()) >= FEWEST_DIFFERENT
    images = np.flatnonzero(conflict) if enough else np.zeros(0, dtype=int)
    values = linearized_ratio(shape, shape + texture) if enough else np.zeros(0)
    return PerImage(
        quantity=np.full(len(images), SHAPE_BIAS),
        image=images,
        value=values,
        provenance=predictions.provenance,
    )


def _conflict(
    predictions: Predictions, textures: Int64[np.ndarray, " n"]
) -> Bool[np.ndarray, " n"]:
    """Images that show the shape of one category and the texture of another."""
    return (predictions.targets.numpy() != textures) & (textures != NO_CUE)


def _decisions(predictions: Predictions) -> Int64[np.ndarray, " n"]:
    """The predicted category of each image."""
    return predictions.members.double().softmax(-1).mean(0).argmax(1).numpy()


def by_category(predictions: Predictions, classes: Sequence[Sequence[int]]) -> Predictions:
    """Predictions over categories, each the mean over several classes of the model.

    The score of a category is the logarithm of the mean probability of its classes, as in
    Geirhos et al. The targets must be categories already.
    """
    if not classes or not all(classes):
        raise InputError(
            f"classes must have at least one class of each category, got {classes!r}"
        )
    highest = max(max(group) for group in classes)
    if highest >= predictions.members.shape[-1]:
        raise InputError(
            f"classes must be below {predictions.members.shape[-1]}, the number of classes of "
            f"the model, got {highest}"
        )
    members = predictions.members.double().log_softmax(-1)
    scores = _mean_probability(members, classes).float()
    return Predictions(scores, predictions.targets, predictions.provenance)


def _mean_probability(logs: Float[Tensor, "s n k"], classes: Sequence[Sequence[int]]) -> Tensor:
    means = [logs[..., list(g)].logsumexp(-1) - np.log(len(g)) for g in classes]
    scores = torch.stack(means, dim=-1)
    return scores if len(scores) > 1 else scores[0]


def _ratio(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    return np.where(denominator > 0, numerator / np.maximum(denominator, 1), np.nan)
