"""Cached forward passes: a pass that starts at a cut, with the tensor of an earlier pass.

Everything passes through a cut, so that operations before it need not run again: each torch
function before it that depends on the image returns a tensor of the right shape that takes no
memory, and the one at the cut returns the cached tensor. What does not depend on the image
(position tables, masks) is computed as usual. The code of the model runs from its first line,
so that this can be tried for any dissected model; its logits show whether it works.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from visprism.anatomy.blocks.anatomy import Anatomy
from visprism.anatomy.run.interception import is_intercepted
from visprism.anatomy.run.partial_forward import PartialForward, Recorder, output_spec
from visprism.anatomy.trace.forward import Images, batch_size, forward, pixels
from visprism.anatomy.trace.operation_counter import count_operations
from visprism.core.errors import InputError

_TOLERANCE = 1e-5  # of the largest logit; kernels may add in another order


@dataclass
class Recording:
    """The logits of a forward pass, and its tensors at some cuts."""

    logits: Tensor
    values: dict[int, Tensor]  # by node
    # Of each torch function that gave a tensor its name, whether it worked on the image, and
    # what it gave, without the numbers.
    calls: list[tuple[str, bool, Any]] = field(default_factory=list, repr=False)


def cache_cuts(anatomy: Anatomy, images: Images, cuts: Iterable[int]) -> Recording:
    """Run the model and cache the tensors of the nodes `cuts`.

    Costs a forward pass and the memory of those tensors.
    """
    recording = Recording(torch.empty(0), {})
    nodes = anatomy.graph.nodes
    wanted = {nodes[i].call: i for i in cuts if i > 0}
    on_images = {node.call for node in nodes}
    if 0 in cuts:
        recording.values[0] = pixels(images).clone()

    def written(number: int, name: str, operands: list[Tensor], out: Any) -> None:
        recording.calls.append((name, number in on_images, output_spec(out, operands)))
        if number in wanted:
            tensor = operands[0] if name == "__setitem__" else out
            recording.values[wanted[number]] = tensor.detach().clone()

    with count_operations(anatomy.model, Recorder(written)):
        recording.logits = forward(anatomy.model, images)
    return recording


@contextmanager
def forward_from_cut(
    anatomy: Anatomy, recording: Recording, cut: int, value: Tensor | None = None
) -> Iterator[None]:
    """Inside, the model begins at the cut, of the same images as the recording's.

    Args:
        anatomy: of the model that will run.
        recording: of a pass over the images that it will run on.
        cut: node of the graph.
        value: to begin with; by default the one that was there.
    """
    start = recording.values[cut] if value is None else value
    if cut == 0:
        raise InputError(
            "cut must be after the image: a pass that begins at "
            "the image is an ordinary forward pass. Call the "
            "model."
        )
    number = anatomy.graph.nodes[cut].call
    with count_operations(anatomy.model, PartialForward(recording.calls, number, start)):
        yield


def can_start_at(anatomy: Anatomy, images: Images, cuts: Iterable[int]) -> set[int]:
    """The cuts from which the model gives the logits of a whole pass, to 1e-5 of the largest.

    Costs a forward pass, and for each cut the part of one behind it.
    """
    cuts = [i for i in cuts if i > 0 and anatomy.graph.nodes[i].call >= 0]
    if is_intercepted(anatomy.model):  # whose operations are numbered already
        return set()
    recording = cache_cuts(anatomy, images, cuts)
    reach = _TOLERANCE * recording.logits.abs().max()
    exact_cuts = set()
    for cut in cuts:
        try:
            with forward_from_cut(anatomy, recording, cut):
                logits = forward(anatomy.model, images)
        except (RuntimeError, ValueError, TypeError, IndexError, KeyError, AttributeError):
            continue  # any error of the model's code
        if logits.shape == recording.logits.shape and bool(
            (logits - recording.logits).abs().max() <= reach
        ):
            exact_cuts.add(cut)
    return exact_cuts


def first_images(images: Images, number: int) -> Images:
    """The first few images of a batch."""
    if isinstance(images, Mapping):
        size = batch_size(images)
        return {k: v[:number] if len(v) == size else v for k, v in images.items()}
    return images[:number]
