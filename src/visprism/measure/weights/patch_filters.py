"""Filters: the kernels with which a model first reads its images, as principal components.

Source: Dosovitskiy et al. (2021), An image is worth 16x16 words, fig. 7, left.
"""

from dataclasses import replace

import numpy as np
from jaxtyping import Float

from visprism.anatomy import Anatomy
from visprism.core.errors import InputError
from visprism.core.provenance import Provenance
from visprism.measure.batches import image_shape
from visprism.results.base import Result, result_type, scalar
from visprism.results.base import column as quantity


@result_type("patch-filters")
class PatchFilters(Result):
    """Principal components of a model's first kernels; one row for each weight of each."""

    component: np.ndarray = quantity("Component", "", "1 for the one with the largest share")
    share: np.ndarray = quantity(
        "Share", "", "of the kernels' variance that lies along the component"
    )
    channel: np.ndarray = quantity("Channel", "", "of the image: 0, 1, 2 for red, green, blue")
    row: np.ndarray = quantity("Row", "", "of the kernel; 0 is the uppermost")
    column: np.ndarray = quantity("Column")
    value: np.ndarray = quantity(
        "Value", "", "-1 ... 1: weight over the component's largest, which is positive"
    )
    parameter: str = scalar("Parameter", "", "where the kernels stand in the model")
    kernels: int = scalar("Kernels", "", "how many there are")


def patch_filters(
    anatomy: Anatomy, *, components: int = 28, provenance: Provenance | None = None
) -> PatchFilters:
    """Principal components of the kernels with which the image is first read.

    With K the kernels as rows (kernels, channels * height * width) less their mean row,
    K = U S V^T; the components are the rows of V^T, and S_i^2 over the sum of all is the share
    of the i-th. Each is divided by its weight of largest magnitude (the first of equals), which
    fixes its sign. Components along which nothing varies are left out, so there may be fewer
    than asked for: at most one less than there are kernels.

    Costs one singular value decomposition of the kernels; no image is needed.

    Args:
        anatomy: of any model whose first layer is a convolution.
        components: how many, at most.
        provenance: what is known of the model; the shape of its images is filled in here.

    Raises:
        InputError: if the image is first read by anything but a convolution over all of its
            channels, if the kernels are all alike or not finite, or if `components` is under 1.

    Source: Dosovitskiy et al. (2021), fig. 7, left.
    """
    if components < 1:
        raise InputError(f"components is {components}; wants at least 1")
    name, kernels = _kernels(anatomy)
    deviations = (kernels - kernels.mean(0)).reshape(len(kernels), -1)
    if not np.isfinite(deviations).all():
        raise InputError(f"{name!r} is NaN or infinite in places; load weights that are not")
    _, sizes, directions = np.linalg.svd(deviations, full_matrices=False)
    # What rounding leaves of a direction along which nothing varies, as NumPy's matrix_rank.
    noise = np.linalg.norm(kernels) * max(deviations.shape) * np.finfo(float).eps
    number = min(components, int((sizes > noise).sum()))
    if number == 0:
        raise InputError(
            f"the {len(kernels)} kernels of {name!r} are all alike, so they have no principal "
            "components; train the model, or load its weights"
        )
    found = directions[:number]
    largest = abs(found).argmax(1, keepdims=True)
    found = found / np.take_along_axis(found, largest, 1)
    shape = kernels.shape[1:]
    channel, row, column = np.indices(shape).reshape(3, -1)
    shares = sizes**2 / (sizes**2).sum()
    return PatchFilters(
        component=np.repeat(np.arange(1, number + 1), len(row)),
        share=np.repeat(shares[:number], len(row)),
        channel=np.tile(channel, number),
        row=np.tile(row, number),
        column=np.tile(column, number),
        value=found.ravel(),
        parameter=name,
        kernels=len(kernels),
        provenance=replace(provenance or Provenance(), image_shape=image_shape(anatomy)),
    )


def _kernels(
    anatomy: Anatomy,
) -> tuple[str, Float[np.ndarray, "kernels channels height width"]]:
    """The first kernels and their name in the model.

    Raises:
        InputError: if the image is not read by a convolution over all of its channels.
    """
    stem = anatomy.blocks[0]
    channels = image_shape(anatomy)[0]
    inside = anatomy.graph.nodes[stem.start + 1 : stem.end + 1]
    first = next((node for node in inside if node.role in {"conv", "linear"}), None)
    wanted = (
        f"patch filters want a convolution over the {channels} channels of the image, with "
        f"kernels of the shape (kernels, {channels}, height, width), as the first layer"
    )
    if first is None:
        raise InputError(
            f"no convolution reads the image in the first block, {stem.name!r}; {wanted}"
        )
    weights = {name: anatomy.model.get_parameter(name) for name in first.parameters}
    found = {n: w for n, w in weights.items() if w.ndim == 4 and w.shape[1] == channels}
    if first.op != "conv2d" or not found:
        shapes = [f"{name!r} ({'x'.join(map(str, w.shape))})" for name, w in weights.items()]
        by = f"{first.op} with {', '.join(shapes) or 'no parameter'}"
        raise InputError(f"the image is first read by {by}; {wanted}")
    name = max(found, key=lambda n: found[n].numel())  # a gain has the same number of axes
    return name, found[name].detach().double().cpu().numpy()
