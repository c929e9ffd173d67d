"""Gradients: how strongly the centre of each block's feature map depends on each pixel.

The weight of a pixel is the absolute gradient of the centre position with respect to it, summed
over colours and averaged over images. It says which pixels the position does use; the
theoretical receptive field, which kernels and strides give, says which it could.

Sources: Luo et al. (2016), Understanding the effective receptive field in deep convolutional
neural networks; Ding et al. (2022), Scaling up your kernels to 31x31.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from visprism.anatomy import Anatomy, Block, Images, batch_size, forward, pixels, watch
from visprism.anatomy.trace.forward import as_written
from visprism.core.devices import CPU, Compute
from visprism.core.errors import InputError
from visprism.core.processes import gather, rank, share, world_size
from visprism.core.provenance import Provenance
from visprism.core.rng import stream
from visprism.measure.batches import Batch, blocks_on_grid, image_shape, images_of
from visprism.measure.features.receptive_extent import (
    Fields,
    ReceptiveField,
    ReceptiveMaps,
    extents,
    fields_of,
    maps_of,
)


def receptive_field(
    anatomy: Anatomy,
    batches: Iterable[Batch],
    *,
    maps: int = 7,
    seed: int = 0,
    compute: Compute = CPU,
    progress: Callable[[Iterable], Iterable] | None = None,
    provenance: Provenance | None = None,
) -> tuple[ReceptiveField, ReceptiveMaps]:
    """Effective receptive field of each block: its size, and its map for some blocks.

    With y the feature map at its centre position (h // 2, w // 2) and s random signs, the
    weight of pixel p is the mean over images of the sum over colours of |d(sum_c s_c y_c)/dp|.
    The signs are there because a sum over channels without them is constant behind a norm over
    channels, so that its gradient is nothing but rounding.

    Costs one forward pass of each batch with its activations kept, and for each block one
    backward pass from it to the image: about half as many full backward passes as there are
    blocks. Eight images are enough for sizes. The forward pass has the model's own precision,
    whatever that of `compute`, since half-precision gradients underflow. Parameters get no
    gradients.

    Args:
        anatomy: of a model in evaluation mode.
        batches: each is images, or (images, targets), as `observe` takes them.
        maps: of how many blocks a map is kept, evenly spread over the row of blocks.
        seed: of the signs.
        compute: device.
        progress: wraps the batches to show how far it is, as ``tqdm.tqdm`` does.
        provenance: what is known of the model and the data; the rest is filled in here.

    Returns:
        The sizes, one row for each block, and the maps.

    Raises:
        InputError: if the model is in training mode, there are no images or they do not fit, a
            block cannot be differentiated, or `maps` is under 1.

    Sources: Luo et al. (2016); the areas are the high-contribution areas of Ding et al. (2022),
    but about the field's own middle; the signs are those of Hutchinson (1989).
    """
    if maps < 1:
        raise InputError(f"maps is {maps}; wants at least 1 block to draw")
    blocks = blocks_on_grid(anatomy)
    sums: dict[Block, Fields] = {}
    seen = largest = 0
    with compute.borrow(anatomy.model), as_written():
        shown = progress if progress and rank() == 0 else iter
        for batch in shown(share(batches)):
            images = images_of(batch, anatomy, compute)
            for block, weight in _weights(anatomy, blocks, images, seed):
                new = fields_of(weight)
                sums[block] = sums[block] + new if block in sums else new
            seen += batch_size(images)
            largest = max(largest, batch_size(images))
    sums, seen, largest = _together(sums, seen, largest)
    if not seen:
        raise InputError("no images were seen; is the data empty?")
    facts = replace(
        provenance or Provenance(),
        images=seen,
        image_shape=image_shape(anatomy),
        batch_size=largest,
        device=compute.device,
        processes=world_size(),
        seed=seed,
    )
    sizes, drawn = extents(sums), maps_of(sums, maps)
    return replace(sizes, provenance=facts), replace(drawn, provenance=facts)


def _weights(
    anatomy: Anatomy, blocks: Sequence[Block], images: Images, seed: int
) -> Iterator[tuple[Block, Tensor]]:
    """The weight of each pixel (B, H, W) for each block in turn."""

    def centre(x: Tensor) -> Tensor:
        """The centre position with signs, of all images together: they do not mix.

        A number of its own, so that a later change of the feature map in place is not in it.
        """
        signs = torch.randint(2, (x.shape[1],), generator=stream(seed, "signs", x.shape[1]))
        at = x[:, :, x.shape[2] // 2, x.shape[3] // 2]
        return (at * (2 * signs - 1).to(at)).sum()

    with torch.enable_grad():
        leaf = pixels(images).detach().clone().requires_grad_()
        with watch(anatomy, centre, blocks=blocks) as centres:
            forward(anatomy.model, _with_pixels(images, leaf.clone()))  # a leaf may not change
        for block in blocks:
            if block.name not in centres:
                raise InputError(
                    f"block {block.name!r} did not run for these images as it did when the "
                    "model was dissected; dissect the model as it is now, with images like "
                    "these"
                )
            last = block is blocks[-1]
            gradient = _gradient(centres.pop(block.name), leaf, block, keep=not last)
            yield block, gradient.abs().sum(1)


def _with_pixels(images: Images, tensor: Tensor) -> Images:
    """The images with another tensor for the images proper."""
    if not isinstance(images, Mapping):
        return tensor
    own = pixels(images)
    return {name: tensor if value is own else value for name, value in images.items()}


def _gradient(centre: Tensor, leaf: Tensor, block: Block, *, keep: bool) -> Tensor:
    """Gradient with respect to the images.

    Raises:
        InputError: if there is none, or it is not finite.
    """
    if not centre.requires_grad:
        raise _no_field(block, "the model detaches it from the images")
    try:
        (gradient,) = torch.autograd.grad(centre, leaf, retain_graph=keep, allow_unused=True)
    except RuntimeError as error:
        raise _no_field(block, str(error).strip().splitlines()[0].rstrip(".")) from error
    if gradient is None:
        raise _no_field(block, "no gradient arrives at the images")
    if not torch.isfinite(gradient).all():
        raise _no_field(block, "its gradient is NaN or infinite")
    return gradient


def _no_field(block: Block, reason: str) -> InputError:
    return InputError(
        f"block {block.name!r} has no receptive field ({reason}); the model must be "
        "differentiable from its images on, outside of torch.no_grad"
    )


def _together(
    sums: Mapping[Block, Fields], seen: int, largest: int
) -> tuple[dict[Block, Fields], int, int]:
    """The sums of all processes, added in the order of ranks: equal bits everywhere."""
    every = gather((dict(sums), seen, largest))
    total: dict[Block, Fields] = {}
    for own, _, _ in every:
        for block, fields in own.items():
            total[block] = total[block] + fields if block in total else fields
    return total, sum(n for _, n, _ in every), max(n for *_, n in every)
