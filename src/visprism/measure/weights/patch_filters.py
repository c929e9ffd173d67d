"""Patch filters: principal components of the kernels that first read the image.

Source: Dosovitskiy et al. (2021), An image is worth 16x16 words, fig. 7, left.
"""

from dataclasses import replace

import numpy as np
from jaxtyping import Float

from visprism.anatomy import Anatomy
from visprism.core.errors import InputError
from visprism.core.run import DEFAULT_RUN, Run
from visprism.results.weights import PatchFilters


def patch_filters(
    anatomy: Anatomy, *, components: int = 28, run: Run = DEFAULT_RUN
) -> PatchFilters:
    """Principal components of the kernels that first read the image.

    With K the kernels as rows (kernels, channels * height * width) less their mean row,
    K = U S V^T; the components are the rows of V^T, and S_i^2 over the sum of all is the
    explained variance of the i-th. Each is divided by its weight of largest magnitude (the
    first of equals), which fixes its sign. Components without variance are left out, so there
    are at most one fewer than kernels.

    Costs one singular value decomposition of the kernels; no image is needed.

    Args:
        anatomy: of any model whose first layer is a convolution.
        components: largest number of components.
        run: of which only the provenance is used.

    Source: Dosovitskiy et al. (2021), fig. 7, left.
    """
    if components < 1:
        raise InputError(f"components must be at least 1, got {components}")
    name, kernels = _kernels(anatomy)
    deviations = (kernels - kernels.mean(0)).reshape(len(kernels), -1)
    if not np.isfinite(deviations).all():
        raise InputError(f"{name} must be finite, got NaN or infinite weights")
    _, sizes, directions = np.linalg.svd(deviations, full_matrices=False)
    # The rounding error of a singular value of 0, as in NumPy's matrix_rank.
    rounding = np.linalg.norm(kernels) * max(deviations.shape) * np.finfo(float).eps
    number = min(components, int((sizes > rounding).sum()))
    if number == 0:
        raise InputError(
            f"kernels must differ to have principal components, and the {len(kernels)} of "
            f"{name} are equal. Load trained weights."
        )
    leading = directions[:number]
    largest = abs(leading).argmax(1, keepdims=True)
    leading = leading / np.take_along_axis(leading, largest, 1)
    shape = kernels.shape[1:]
    channel, row, column = np.indices(shape).reshape(3, -1)
    shares = sizes**2 / (sizes**2).sum()
    return PatchFilters(
        component=np.repeat(np.arange(1, number + 1), len(row)),
        share=np.repeat(shares[:number], len(row)),
        channel=np.tile(channel, number),
        row=np.tile(row, number),
        column=np.tile(column, number),
        value=leading.ravel(),
        parameter=name,
        kernels=len(kernels),
        provenance=replace(run.provenance, image_shape=anatomy.image_shape),
    )


def why_no_kernels(anatomy: Anatomy) -> str | None:
    """Why a model has no first kernels, as a sentence; None if it has."""
    try:
        _kernels(anatomy)
    except InputError as error:
        return str(error)
    return None


def _kernels(
    anatomy: Anatomy,
) -> tuple[str, Float[np.ndarray, "kernels channels height width"]]:
    """The first kernels and their name in the model."""
    stem = anatomy.blocks[0]
    channels = anatomy.image_shape[0]
    inside = anatomy.nodes(stem)
    first = next((node for node in inside if node.role in {"conv", "linear"}), None)
    required = (
        f"the first layer must be a convolution over the {channels} channels of the image"
    )
    if first is None:
        raise InputError(f"{required}, and the first block, {stem.name}, has no convolution")
    weights = {name: anatomy.model.get_parameter(name) for name in first.parameters}
    kernels = {n: w for n, w in weights.items() if w.ndim == 4 and w.shape[1] == channels}
    if first.op != "conv2d" or not kernels:
        shapes = [f"{name} ({'x'.join(map(str, w.shape))})" for name, w in weights.items()]
        by = f"{first.op} with {', '.join(shapes) or 'no parameter'}"
        raise InputError(f"{required}, got {by}")
    name = max(kernels, key=lambda n: kernels[n].numel())  # a gain has the same number of axes
    return name, kernels[name].detach().double().cpu().numpy()
