"""Patch filters: principal components of the kernels that first read the image."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.colors import Normalize

from visprism import kit
from visprism.drawing import style
from visprism.drawing.color_bars import caption, framed, picture
from visprism.table.result import column as quantity

_SCALE = Normalize(-1, 1)
_ACROSS, _DOWN = 7, 4  # components, as in the paper
_BELOW = 0.36  # of the height of a component, for its share


@kit.result("patch-filters", "Patch filters", table=False)
class FilterComponents(kit.Result):
    """Principal components of the first kernels; one row for each weight of each component.

    Principal components of the kernels that first read the image, with their explained
    variance. Smooth leading components span low frequencies.
    """

    component: np.ndarray = quantity(
        "Component", "", "1 for the component of largest explained variance"
    )
    share: np.ndarray = quantity(
        "Explained variance", "", "fraction of the variance of the kernels along the component"
    )
    channel: np.ndarray = quantity("Channel", "", "channel of the image: 0, 1, 2 for RGB")
    row: np.ndarray = quantity("Row", "pixels", "row of the kernel from the top")
    column: np.ndarray = quantity("Column", "pixels", "column of the kernel from the left")
    value: np.ndarray = quantity(
        "Weight", "", "weight over the weight of largest magnitude of the component"
    )
    parameter: str = kit.scalar("Parameter", "", "name of the parameter that holds the kernels")
    kernels: int = kit.scalar("Kernels", "", "number of kernels")

    def sentences(self) -> Iterator[str | kit.Finding]:
        """Explained variance of the leading components."""
        _, first = np.unique(self.component, return_index=True)
        shares = self.share[first]
        leading = ", ".join(f"{share:.1%}" for share in shares[:3])
        half = int((np.cumsum(shares) < 0.5).sum()) + 1
        text = (
            f"explained variance of the leading principal components of {self.kernels} kernels "
            f"({self.parameter}): {leading}"
        )
        if half <= len(shares):
            text += f"; {half} component{'s' if half > 1 else ''} explain half"
        yield text


@kit.analysis
class PatchFilters(kit.Analysis):
    """Principal components of the kernels that first read the image."""

    name = "patch-filters"
    rank = 0
    group = "weights"
    source = "Dosovitskiy et al. (2021), fig. 7, left"
    gives = FilterComponents

    components: int = kit.option(28, "maximum number of principal components", minimum=1)

    def measure(self, subject: kit.Subject, run: kit.Run) -> Sequence[kit.Result]:
        """Decompose the kernels."""
        return (patch_filters(subject.anatomy, components=self.components, run=run),)

    def inapplicable(self, subject: kit.Subject) -> str | None:
        """Also where no convolution reads the image."""
        return super().inapplicable(subject) or kit.reason_of_error(
            first_kernels, subject.anatomy
        )


def patch_filters(
    anatomy: kit.Anatomy, *, components: int = 28, run: kit.Run = kit.DEFAULT_RUN
) -> FilterComponents:
    """Principal components of the kernels that first read the image.

    With K the kernels as rows (kernels, channels * height * width) less their mean row,
    K = U S V^T; the components are the rows of V^T, and S_i^2 over the sum of all is the
    explained variance of the i-th. Each is divided by its weight of largest magnitude (the
    first of equals), which fixes its sign. Components without variance are left out, so there
    are at most one fewer than kernels.

    Costs one singular value decomposition of the kernels; no image is needed.

    Args:
        anatomy: of any model whose first layer is a convolution.
        components: at most so many.
        run: of which only the provenance is used.
    """
    name, kernels = first_kernels(anatomy)
    deviations = (kernels - kernels.mean(0)).reshape(len(kernels), -1)
    if not np.isfinite(deviations).all():
        raise kit.InputError(f"{name} must be finite, got NaN or infinite weights")
    _, sizes, directions = np.linalg.svd(deviations, full_matrices=False)
    # The rounding error of a singular value of 0, as in NumPy's matrix_rank.
    rounding = np.linalg.norm(kernels) * max(deviations.shape) * np.finfo(float).eps
    number = min(components, int((sizes > rounding).sum()))
    if number == 0:
        raise kit.InputError(
            f"kernels must differ to have principal components, and the {len(kernels)} of "
            f"{name} are equal. Load trained weights."
        )
    leading = directions[:number]
    largest = abs(leading).argmax(1, keepdims=True)
    leading = leading / np.take_along_axis(leading, largest, 1)
    shape = kernels.shape[1:]
    channel, row, column = np.indices(shape).reshape(3, -1)
    shares = sizes**2 / (sizes**2).sum()
    return FilterComponents(
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


def first_kernels(
    anatomy: kit.Anatomy,
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
        raise kit.InputError(
            f"{required}, and the first block, {stem.name}, has no convolution"
        )
    weights = {name: anatomy.model.get_parameter(name) for name in first.parameters}
    kernels = {n: w for n, w in weights.items() if w.ndim == 4 and w.shape[1] == channels}
    if first.op != "conv2d" or not kernels:
        shapes = [f"{name} ({'x'.join(map(str, w.shape))})" for name, w in weights.items()]
        by = f"{first.op} with {', '.join(shapes) or 'no parameter'}"
        raise kit.InputError(f"{required}, got {by}")
    name = max(kernels, key=lambda n: kernels[n].numel())  # a gain has the same number of axes
    return name, kernels[name].detach().cpu().double().numpy()


@kit.figure(width=3.1, height=2.3)
def _(result: FilterComponents, ax: Axes) -> Axes:
    """Principal components as images, row by row; below each, its explained variance.

    RGB images have RGB components; of others the first channel is drawn in gray.
    """
    sides = result.row.max() + 1, result.column.max() + 1
    width = sides[1] / sides[0]  # a picture is 1 high, so that models share axes
    step = 1.12 * width, 1 + _BELOW
    for component in np.unique(result.component):
        rows = result.select(result.component == component)
        weights = rows.value.reshape(-1, *sides)
        rgb = weights if len(weights) == 3 else weights[[0, 0, 0]]
        down, across = divmod(int(component) - 1, _ACROSS)
        left, top = across * step[0], down * step[1]
        picture(ax, _SCALE(np.moveaxis(rgb, 0, -1)), left, top, width=width)
        share = f"{rows.share[0]:.1%}"
        text = f"component {component} · explained variance {share}"
        framed(ax, left, top, width, 1.0, text)
        caption(ax, share, (left + width / 2, top + 1), down=1.5, fontsize=5, color=style.FAINT)
    down = max(_DOWN, -(-int(result.component.max()) // _ACROSS))
    ax.set(xlim=(-0.02, _ACROSS * step[0]), ylim=(down * step[1], -0.02))
    ax.axis("off")
    return ax
