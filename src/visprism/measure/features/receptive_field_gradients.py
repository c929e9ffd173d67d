"""Receptive fields: dependence of the center of each feature map on each pixel.

The weight of a pixel is the absolute gradient of the center position with respect to it, summed
over colors and averaged over images. It shows which pixels the position uses; the theoretical
receptive field, given by kernels and strides, shows which it could use.

Sources: Luo et al. (2016), Understanding the effective receptive field in deep convolutional
neural networks; Ding et al. (2022), Scaling up your kernels to 31x31.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from visprism.anatomy import Anatomy, Block, Images, batch_size, forward, pixels, watch
from visprism.anatomy.trace.forward import as_written
from visprism.core.errors import InputError
from visprism.core.processes import gather, share
from visprism.core.run import DEFAULT_RUN, Run, stream
from visprism.measure.features.receptive_extent import (
    Fields,
    extents,
    fields_of,
    in_turn,
    maps_of,
    sigma_of_images,
)
from visprism.passes.batches import Batch, blocks_on_grid, image_shape, images_of
from visprism.results.per_image import PerImage
from visprism.results.receptive_field import ReceptiveField, ReceptiveMaps


def receptive_field(
    anatomy: Anatomy,
    batches: Iterable[Batch],
    *,
    num_blocks: int = 7,
    run: Run = DEFAULT_RUN,
) -> tuple[ReceptiveField, ReceptiveMaps, PerImage]:
    """Effective receptive field of each block: its size, and its map for some blocks.

    With y the feature map at its center position (h // 2, w // 2) and s random signs, the
    weight of pixel p is the mean over images of the sum over colors of |d(sum_c s_c y_c)/dp|.
    Without the signs, a sum over channels is constant behind a norm over channels, so that its
    gradient is nothing but rounding.

    Costs one forward pass of each batch with its activations stored, and for each block one
    backward pass from it to the image: at most half as many full backward passes as there are
    blocks. Eight images are enough for sizes. Parameters get no
    gradients.

    Args:
        anatomy: of a model in evaluation mode.
        batches: each is images, or (images, targets), as `observe` takes them.
        num_blocks: number of blocks with a map, spread evenly over the depth.
        run: device, seed of the signs, progress and provenance; the precision must be "fp32",
            since gradients in half precision underflow.

    Returns:
        The sizes, one row for each block, the maps, and sigma of the last block for each image.

    Sources: Luo et al. (2016); the areas are the high-contribution areas of Ding et al. (2022),
    but around the field's center of mass; the signs are those of Hutchinson (1989).
    """
    run.require_full_precision("the receptive field")
    run = run.on(anatomy.model)
    if num_blocks < 1:
        raise InputError(f"num_blocks must be at least 1, got {num_blocks}")
    blocks = blocks_on_grid(anatomy)
    sums: dict[Block, Fields] = {}
    images = largest = 0
    shared = share(batches)
    ticks = run.ticks(shared, len(blocks), "receptive fields")
    with run.compute.borrow(anatomy.model), as_written(), ticks as tick:
        for batch in shared:
            x = images_of(batch, anatomy, run.compute)
            for block, weight in _weights(anatomy, blocks, x, run):
                tick()
                new = fields_of(weight)
                sums[block] = sums[block] + new if block in sums else new
            images += batch_size(x)
            largest = max(largest, batch_size(x))
    sums, images, largest = _all_reduce(sums, images, largest)
    if not images:
        raise InputError("batches must hold at least one image, got none")
    origin = run.measured(images=images, batch_size=largest, image_shape=image_shape(anatomy))
    sizes = extents(sums)
    return (
        replace(sizes, provenance=origin),
        replace(maps_of(sums, num_blocks), provenance=origin),
        replace(sigma_of_images(sums, sizes), provenance=origin),
    )


def receptive_map(
    anatomy: Anatomy,
    images: Images,
    block: Block,
    position: tuple[int, int],
    *,
    run: Run = DEFAULT_RUN,
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
        raise InputError(f"block must have a spatial grid, got {block.name!r}")
    grid = block.shape[-2:]
    if not all(0 <= p < side for p, side in zip(position, grid, strict=True)):
        sides = "x".join(map(str, grid))
        raise InputError(f"position must lie on the grid of {sides} positions, got {position}")
    x = images_of(images, anatomy, run.compute)
    with run.compute.borrow(anatomy.model), as_written(), torch.enable_grad():
        leaf = pixels(x).detach().clone().requires_grad_()
        with watch(anatomy, lambda y: _signed_sum(y, position, run), blocks=[block]) as sums:
            forward(anatomy.model, _with_pixels(x, leaf.clone()))
        gradient = _gradient(sums[block.name], leaf, block)
    return gradient.abs().sum(1)


def _signed_sum(x: Tensor, position: tuple[int, int], run: Run) -> Tensor:
    """One position with random signs, of all images together: they do not mix."""
    signs = torch.randint(2, (x.shape[1],), generator=stream(run.seed, "signs", x.shape[1]))
    return (x[:, :, position[0], position[1]] * (2 * signs - 1).to(x)).sum()


def _weights(
    anatomy: Anatomy, blocks: Sequence[Block], images: Images, run: Run
) -> Iterator[tuple[Block, Tensor]]:
    """The weight of each pixel (B, H, W) for each block in turn."""

    def center(x: Tensor) -> Tensor:
        return _signed_sum(x, (x.shape[2] // 2, x.shape[3] // 2), run)

    with torch.enable_grad():
        leaf = pixels(images).detach().clone().requires_grad_()
        with watch(anatomy, center, blocks=blocks) as centers:
            forward(anatomy.model, _with_pixels(images, leaf.clone()))  # a leaf may not change
        for block in blocks:
            if block.name not in centers:
                raise InputError(
                    f"block {block.name!r} did not run for these images as it did when the "
                    "model was dissected. Dissect the model as it is now, with images like "
                    "these."
                )
            gradient = _gradient(centers.pop(block.name), leaf, block)
            yield block, gradient.abs().sum(1)


def _with_pixels(images: Images, tensor: Tensor) -> Images:
    """The images with another tensor for the images proper."""
    if not isinstance(images, Mapping):
        return tensor
    original = pixels(images)
    return {name: tensor if value is original else value for name, value in images.items()}


def _gradient(center: Tensor, leaf: Tensor, block: Block) -> Tensor:
    """Gradient with respect to the images, in double precision on the CPU."""
    if not center.requires_grad:
        raise _no_field(block, "the model detaches it from the images")
    try:
        (gradient,) = torch.autograd.grad(center, leaf, retain_graph=True, allow_unused=True)
    except RuntimeError as error:
        raise _no_field(block, str(error).strip().splitlines()[0].rstrip(".")) from error
    if gradient is None:
        raise _no_field(block, "no gradient arrives at the images")
    if not torch.isfinite(gradient).all():
        raise _no_field(block, "its gradient is NaN or infinite")
    return gradient.cpu().double()  # not every accelerator has numbers of 64 bits


def _no_field(block: Block, reason: str) -> InputError:
    return InputError(
        f"block {block.name!r} has no receptive field ({reason}). The model must be "
        "differentiable with respect to its images, outside of torch.no_grad."
    )


def _all_reduce(
    sums: Mapping[Block, Fields], images: int, largest: int
) -> tuple[dict[Block, Fields], int, int]:
    """The sums of all processes, added in the order of ranks: equal bits everywhere."""
    parts = gather((dict(sums), images, largest))
    blocks = dict.fromkeys(block for part, _, _ in parts for block in part)
    total = {b: in_turn([part[b] for part, _, _ in parts if b in part]) for b in blocks}
    return total, sum(n for _, n, _ in parts), max(n for *_, n in parts)
