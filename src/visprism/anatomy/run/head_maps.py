"""The output of each attention head as a feature map on the grid of its queries."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor

from visprism.anatomy.blocks.anatomy import Anatomy
from visprism.anatomy.blocks.attention import Attention, attentions
from visprism.anatomy.run.interception import fixed_image_size, intercept
from visprism.anatomy.run.replaced_parts import weighted_values
from visprism.core.errors import InputError

ReadHeads = Callable[[Attention, Float[Tensor, "b heads c h w"]], None]


@contextmanager
def watch_heads(anatomy: Anatomy, read: ReadHeads) -> Iterator[tuple[Attention, ...]]:
    """Inside, each forward pass gives `read` the outputs of all heads of each attention.

    The output of a head is the sum of its values, weighted by its attention, before the
    projection of all heads. Yields the attentions whose heads can be read.
    """
    reads, readable = {}, []
    for attention in attentions(anatomy):
        try:
            node = weighted_values(anatomy, attention)
        except InputError:
            continue  # heads and projection are one operation
        readable.append(attention)
        reads[node.index] = _reader(attention, read)
    if not readable:
        raise InputError(
            f"{type(anatomy.model).__name__} must have an attention that exposes its heads, "
            "and has none"
        )
    with fixed_image_size(anatomy), intercept(anatomy, reads=reads, changes={}):
        yield tuple(readable)


def _reader(attention: Attention, read: ReadHeads) -> Callable[[Tensor], None]:
    geometry = attention.geometry
    index = torch.from_numpy(geometry.queries.index)  # (windows, queries); below 0: off grid
    height, width = geometry.queries.grid

    def reader(out: Tensor) -> None:
        images = out.shape[:-2].numel() // (len(index) * geometry.heads)
        by_head = geometry.weights(out, images)
        values = by_head.permute(0, 2, 4, 1, 3).flatten(3)  # (b, heads, c, windows * queries)
        on_grid = (index >= 0).flatten().to(out.device)
        places = index.flatten().to(out.device)[on_grid].long()
        maps = values.new_zeros(*values.shape[:3], height * width)
        maps[..., places] = values[..., on_grid]
        read(attention, maps.unflatten(-1, (height, width)))

    return reader
