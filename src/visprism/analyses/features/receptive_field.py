"""Receptive fields: dependence of the center of each feature map on each pixel.

The weight of a pixel is the absolute gradient of the center position with respect to it, summed
over colors and averaged over images. It shows which pixels the position uses; the theoretical
receptive field, given by kernels and strides, shows which it could use.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from torch import Tensor
from torch.nn.functional import avg_pool2d

from visprism import kit
from visprism.anatomy.run.surgery import watch
from visprism.anatomy.trace import forward
from visprism.core import processes
from visprism.drawing import depth, style
from visprism.passes.batches import Batch, blocks_on_grid, images_of, in_order
from visprism.passes.blocks import spread
from visprism.passes.features import Gathered
from visprism.table.result import column as quantity
from visprism.table.shapes import picture_columns

SIGMA = "\N{GREEK SMALL LETTER SIGMA}"
_CELLS = 56  # most along a side of a map that is drawn


@kit.result(
    "receptive-field",
    "Effective receptive field",
    figures={"": {}, "side": {"quantity": "side_50"}},
    overview={"Receptive field \N{GREEK SMALL LETTER SIGMA}\n(pixels)": {}},
)
class FieldSizes(kit.ScalarPerBlock):
    """Size of the effective receptive field; one row for each block. NaN where it is empty.

    Each point is a block: the root mean squared distance, along one axis, of the pixels
    that its center position depends on. The dashed line shows equal weights for all pixels.
    """

    value_name = "sigma"

    sigma: kit.Estimated = kit.estimate(
        f"{SIGMA} of the effective receptive field",
        "pixels",
        "root mean squared distance along one axis from its center of mass",
        asks="How large is the receptive field?",
        in_pixels=True,
    )
    side_50: np.ndarray = quantity(
        "Side of the 50% square",
        "pixels",
        "smallest square around its center of mass that holds 50% of it",
    )
    side_95: np.ndarray = quantity(
        "Side of the 95% square",
        "pixels",
        "smallest square around its center of mass that holds 95% of it",
    )
    area_20: np.ndarray = quantity(
        "Area of the 20% square / image", "", "fraction of the image inside the square"
    )
    area_30: np.ndarray = quantity(
        "Area of the 30% square / image", "", "fraction of the image inside the square"
    )
    area_50: np.ndarray = quantity(
        "Area of the 50% square / image", "", "fraction of the image inside the square"
    )
    area_99: np.ndarray = quantity(
        "Area of the 99% square / image", "", "fraction of the image inside the square"
    )
    row: np.ndarray = quantity(
        "Row of the center of mass", "pixels", "0 is the middle of the uppermost pixel"
    )
    column: np.ndarray = quantity(
        "Column of the center of mass", "pixels", "0 is the middle of the leftmost pixel"
    )
    uniform_sigma: float = kit.scalar(
        f"{SIGMA} of a uniform field",
        "pixels",
        "of a field that weighs all pixels of the image alike",
    )

    def answered(self, name: str) -> np.ndarray:
        """The last block that depends on the image."""
        return np.flatnonzero(np.isfinite(self.sigma))[-1:]


@kit.result("receptive-maps", "Receptive fields as maps", table=False)
class ReceptiveMaps(kit.Pictures):
    """Receptive fields as maps, for some blocks spread over the depth; a row for each cell.

    Each picture shows how strongly the center position of a block depends on each pixel,
    relative to the strongest one, on a logarithmic scale. The number below is the depth of
    the block.

    A cell is one pixel, or a square of 2x2, 4x4, ... where the image has more than 56 a side.
    """

    value_name = "relative"
    scale = "log"

    relative: np.ndarray = quantity(
        "Relative to strongest", "", "weight of the cell over the weight of the strongest cell"
    )

    def sentences(self) -> Iterator[str | kit.Finding]:
        """None: `FieldSizes` has the sizes in words."""
        yield from ()


@kit.analysis
class ReceptiveField(kit.Analysis):
    """Effective receptive field: the pixels that the center of each feature map depends on."""

    name = "receptive-field"
    full_precision = True
    needs = kit.Needs.FEATURES | kit.Needs.GRADIENTS
    images = kit.Sizes(quick=32, standard=32, work=0.5)  # the fewest with an interval
    source = "Luo et al. (2016); Ding et al. (2022)"
    gives = (
        FieldSizes,
        ReceptiveMaps,
    )

    num_blocks: int = kit.option(
        7, "number of blocks with a map, spread over the depth", minimum=1
    )

    def measure(self, subject: kit.Subject, run: kit.Run) -> Sequence[kit.Result]:
        """Measure one model; see `Analysis.measure`."""
        return self.of(subject.anatomy, subject.batches(), run=run)

    def of(
        self, anatomy: kit.Anatomy, batches: Iterable[Batch], *, run: kit.Run = kit.DEFAULT_RUN
    ) -> tuple[FieldSizes, ReceptiveMaps]:
        """Effective receptive field of each block: its size, and its map for some blocks.

        With y the feature map at its center position (h // 2, w // 2) and s random signs, the
        weight of pixel p is the mean over images of the sum over colors of
        |d(sum_c s_c y_c)/dp|. Without the signs, a sum over channels is constant behind a norm
        over channels, so that its gradient is nothing but rounding.

        Costs one forward pass of each batch with its activations stored, and for each block one
        backward pass from it to the image: at most half as many full backward passes as there
        are blocks. Eight images are enough for sizes. Parameters get no gradients.

        Args:
            anatomy: of a model in evaluation mode.
            batches: each is images, or (images, targets), as `observe` takes them.
            run: device, seed of the signs, progress and provenance; the precision must be
                "fp32", since gradients in half precision underflow.

        Returns:
            The sizes, one row for each block, and the maps.

        Sources: Luo et al. (2016); the areas are the high-contribution areas of Ding et al.
        (2022), but around the field's center of mass; the signs follow Hutchinson (1989).
        """
        run.require_full_precision("the receptive field")
        run = run.on(anatomy.model)
        blocks = blocks_on_grid(anatomy)
        gathered, sizes = Gathered(), list[int]()
        shared = processes.share(batches)
        ticks = run.ticks(shared, len(blocks), "receptive fields")
        with run.compute.borrow(anatomy.model), forward.as_written(), ticks as tick:
            for batch in shared:
                x = images_of(batch, anatomy, run.compute)
                moments: kit.Arrays = {}
                sums: kit.Arrays = {}
                for block, weight in _weights(anatomy, blocks, x, run):
                    tick()
                    fields = weight.numpy()
                    moments[block], sums[block] = _moments(fields), fields.sum(0)
                gathered.add(moments, sums)
                sizes.append(forward.batch_size(x))
        (by_image, total), every = gathered.of_all_processes(), in_order(sizes)
        origin = run.measured(
            images=sum(every), batch_size=max(every), image_shape=anatomy.image_shape
        )
        maps = maps_of(total, self.num_blocks)
        return _sizes(by_image, total).measured(origin), maps.measured(origin)

    def cost(self, subject: kit.Subject) -> kit.Cost:
        """A forward pass, and for each block a backward pass from it to the image."""
        blocks = sum(block.layout is not None for block in subject.anatomy)
        return kit.Cost(per_image=1.0 + blocks)


def receptive_map(
    anatomy: kit.Anatomy,
    images: forward.Images,
    block: kit.Block,
    position: tuple[int, int],
    *,
    run: kit.Run = kit.DEFAULT_RUN,
) -> Float[Tensor, "b h w"]:
    """Dependence of one position of a block's feature map on each pixel, by image.

    The weight of `receptive_field` at another position than the center. Costs a forward pass
    with its activations stored, and a backward pass from the block to the images.

    Args:
        anatomy: of a model in evaluation mode.
        images: a batch.
        block: of the anatomy, with a spatial grid.
        position: row and column on the grid of the feature map.
        run: device and seed of the signs; the precision must be "fp32".
    """
    run.require_full_precision("the receptive field")
    if block.layout is None:
        raise kit.InputError(f"block must have a spatial grid, got {block.name!r}")
    grid = block.shape[-2:]
    if not all(0 <= p < side for p, side in zip(position, grid, strict=True)):
        sides = "x".join(map(str, grid))
        raise kit.InputError(
            f"position must lie on the grid of {sides} positions, got {position}"
        )
    run = run.on(anatomy.model)
    x = images_of(images, anatomy, run.compute)
    with run.compute.borrow(anatomy.model), forward.as_written():
        ((_, weight),) = _weights(anatomy, [block], x, run, position)
    return weight


def _weights(
    anatomy: kit.Anatomy,
    blocks: Sequence[kit.Block],
    images: forward.Images,
    run: kit.Run,
    position: tuple[int, int] | None = None,
) -> Iterator[tuple[kit.Block, Tensor]]:
    """The weight of each pixel (B, H, W) for each block in turn, by default for its center.

    Each image has its own signs, which follow from its pixels: the interval over images covers
    their draw, and neither batch size nor number of processes changes them.
    """
    pixels = forward.pixels(images).detach().float().cpu().contiguous()
    digests = [blake2b(image.numpy().tobytes(), digest_size=8).hexdigest() for image in pixels]

    def signed_sum(x: Tensor) -> Tensor:
        """One position with random signs, of all images together: they do not mix."""
        row, column = position or (x.shape[2] // 2, x.shape[3] // 2)
        streams = [kit.stream(run.seed, "signs", x.shape[1], digest) for digest in digests]
        signs = torch.stack([torch.randint(2, (x.shape[1],), generator=s) for s in streams])
        return (x[:, :, row, column] * (2 * signs - 1).to(x)).sum()

    with torch.enable_grad():
        leaf = forward.pixels(images).detach().clone().requires_grad_()
        with watch(anatomy, signed_sum, blocks=blocks) as sums:
            forward.forward(anatomy.model, _with_pixels(images, leaf))
        for block in blocks:
            gradient = _gradient(sums.pop(block.name), leaf, block)
            yield block, gradient.abs().sum(1)


def _with_pixels(images: forward.Images, tensor: Tensor) -> forward.Images:
    """The images with another tensor for the images proper."""
    if not isinstance(images, Mapping):
        return tensor
    original = forward.pixels(images)
    return {name: tensor if value is original else value for name, value in images.items()}


def _gradient(signed_sum: Tensor, leaf: Tensor, block: kit.Block) -> Tensor:
    """Gradient with respect to the images, in double precision on the CPU."""
    reason = "its gradient is NaN or infinite"
    try:
        (gradient,) = torch.autograd.grad(signed_sum, leaf, retain_graph=True)
        if torch.isfinite(gradient).all():
            return gradient.cpu().double()  # not every accelerator has numbers of 64 bits
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[0].rstrip(".")
    raise kit.InputError(
        f"block {block.name!r} has no receptive field ({reason}). The model must be "
        "differentiable with respect to its images, outside of torch.no_grad."
    )


def _places(height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of each pixel from the middle of the image, as axes to broadcast."""
    return (np.arange(height) - (height - 1) / 2)[:, None], np.arange(width) - (width - 1) / 2


def _moments(fields: Float[np.ndarray, "b h w"]) -> Float[np.ndarray, "b 4"]:
    """Mass, and mass times row, column and squared distance, of each image's field."""
    row, column = _places(*fields.shape[1:])
    of_rows, of_columns = fields.sum(2), fields.sum(1)
    row = row[:, 0]
    squares = of_rows @ row**2 + of_columns @ column**2
    return np.stack([of_rows.sum(1), of_rows @ row, of_columns @ column, squares], axis=1)


def _sizes(
    moments: Mapping[kit.Block, Float[np.ndarray, "n 4"]],
    total: Mapping[kit.Block, Float[np.ndarray, "h w"]],
) -> FieldSizes:
    """Sizes of all fields."""
    rows, sigmas = [], []
    for block, field in total.items():
        sigma, row, column = _spread(moments[block])
        middle = row + (field.shape[0] - 1) / 2, column + (field.shape[1] - 1) / 2
        sides = _sides(field, (row, column), (20, 30, 50, 95, 99))
        areas = {t: _inside(field.shape, middle, sides[t]) for t in (20, 30, 50, 99)}
        sigmas.append(sigma)
        rows.append(
            {f"side_{t}": sides[t] for t in (50, 95)}
            | {f"area_{t}": area for t, area in areas.items()}
            | {"row": middle[0], "column": middle[1]}
        )
    columns: dict[str, Any] = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    height, width = next(iter(total.values())).shape
    return FieldSizes(
        **kit.block_columns(list(total)),
        **columns,
        sigma=kit.mean(np.stack(sigmas, axis=1)),
        uniform_sigma=float(np.sqrt((height**2 + width**2 - 2) / 24)),
    )


def _spread(moments: Float[np.ndarray, "n 4"]) -> tuple[Float[np.ndarray, " n"], float, float]:
    """Sigma by image, and row and column of the center of mass; NaN without mass.

    Sigma is a function of sums over images. Its values by image are linearized: sigma plus what
    an image adds to it to first order, so that their mean is sigma.
    """
    mass, by_row, by_column, squares = moments.sum(0)
    mass = mass if mass > 0 else np.nan
    row, column = by_row / mass, by_column / mass
    variance = max(0.0, (squares / mass - row**2 - column**2) / 2) + 0 * mass
    part = np.array([(row**2 + column**2) / 2 - variance, -row, -column, 0.5])
    influence = moments @ part / (mass / len(moments))
    sigma = variance**0.5
    return sigma + (influence / (2 * sigma) if sigma else 0 * influence), row, column


def _sides(
    total: Float[np.ndarray, "h w"], middle: tuple[float, float], percents: Sequence[int]
) -> dict[int, float]:
    """Sides of the smallest squares about `middle` that hold these shares of the field."""
    row, column = _places(*total.shape)
    # Rounded, so that pixels of one ring have equal distances despite rounding of the middle.
    distance = np.maximum(abs(row - middle[0]), abs(column - middle[1])).round(6).ravel()
    order = distance.argsort()
    held = total.ravel()[order].cumsum()
    if not held[-1] > 0:
        return dict.fromkeys(percents, np.nan)
    # One part in 10^9 is rounding: a ring that just holds the threshold does hold it.
    shares = np.array(percents) / 100 * held[-1] * (1 - 1e-9)
    farthest = distance[order[np.searchsorted(held, shares)]]
    return dict(zip(percents, (2 * farthest + 1).tolist(), strict=True))


def _inside(image: tuple[int, int], middle: tuple[float, float], side: float) -> float:
    """Fraction of the image that lies in the square."""
    reach = [
        min(length, at + 0.5 + side / 2) - max(0.0, at + 0.5 - side / 2)
        for length, at in zip(image, middle, strict=True)
    ]
    return reach[0] * reach[1] / (image[0] * image[1]) + 0 * side  # NaN stays NaN


def maps_of(total: Mapping[kit.Block, Float[np.ndarray, "h w"]], most: int) -> ReceptiveMaps:
    """The fields of at most `most` blocks, evenly spread, in cells."""
    chosen = spread(list(total), most)
    cells = {f"{b.name} ({b.depth:.2f})": _in_cells(total[b]) for b in chosen}
    maps = {name: field / (field.max() or np.nan) for name, field in cells.items()}
    return ReceptiveMaps(**picture_columns(maps, "relative"))


def _in_cells(total: Float[np.ndarray, "h w"]) -> Float[np.ndarray, "rows columns"]:
    """The sum over each cell, whose side is a power of two as patches and strides are."""
    side = 1
    while max(total.shape) > _CELLS * side:
        side *= 2
    map_ = torch.from_numpy(total)[None, None]
    return avg_pool2d(map_, side, ceil_mode=True, divisor_override=1)[0, 0].numpy()


@kit.figure(width=2.75, height=2.0, key=depth.kinds_key, key_height=0.25)
def _(
    result: FieldSizes, ax: Axes, *, quantity: Literal["sigma", "side_50", "side_95"] = "sigma"
) -> Axes:
    """Size against depth; the dashed line is a field with equal weights."""
    depth.against_depth(ax, result, quantity)
    if quantity == "sigma":
        ax.axhline(
            result.uniform_sigma,
            color=style.FAINT,
            linewidth=0.8,
            linestyle=(0, (4, 2)),
            zorder=1,
            label="_uniform field",
        )
    depth.from_zero(ax)
    ax.set_ylabel(result.infos()[quantity].heading)
    return ax
