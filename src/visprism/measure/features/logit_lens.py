"""Logit lens: what the head of a model predicts from the output of an earlier block.

All blocks behind it are skipped: its tokens go to the head (with the final norm layer) as if
they had left the last block. That is defined where both have one shape.

Source: nostalgebraist (2020), Interpreting GPT: the logit lens.
"""

from collections.abc import Iterable

import numpy as np
import torch
from jaxtyping import Int

from visprism.anatomy import Anatomy, Block, cache_cuts, can_start_at, forward, forward_from_cut
from visprism.core.errors import InputError
from visprism.core.processes import gather
from visprism.core.run import Run
from visprism.passes.batches import Batch, blocks_on_grid, image_indices, labeled


def lens_blocks(anatomy: Anatomy) -> list[Block]:
    """The blocks whose output has the shape and layout of that of the last block on a grid."""
    nodes = anatomy.graph.nodes
    blocks = blocks_on_grid(anatomy)
    last = nodes[blocks[-1].end]
    return [
        block
        for block in blocks
        if nodes[block.end].shape == last.shape and nodes[block.end].layout == last.layout
    ]


def lens_predictions(
    anatomy: Anatomy, batches: Iterable[Batch], run: Run
) -> dict[Block, Int[np.ndarray, " n"]]:
    """Class with the largest logit for each image, by block of `lens_blocks`.

    Costs a forward pass, and for each block a pass of the head.

    Args:
        anatomy: of a model in evaluation mode that gives one vector of logits per image.
        batches: (images, targets).
        run: device, precision and progress.
    """
    blocks = lens_blocks(anatomy)
    last = blocks[-1].end
    parts: list[dict[str, np.ndarray]] = []
    sizes: list[int] = []
    with run.compute.borrow(anatomy.model), torch.no_grad(), run.compute.autocast():
        for batch in run.track_share(batches, "logit lens"):
            images, _ = labeled(batch, run.compute)
            if not parts and last not in can_start_at(anatomy, images, [last]):
                raise InputError(
                    f"the head of {type(anatomy.model).__name__} must run on its own for the "
                    f"logit lens, and does not give the same logits from {blocks[-1].name!r} on"
                )
            recording = cache_cuts(anatomy, images, [block.end for block in blocks])
            classes = {}
            for block in blocks:
                value = recording.values[block.end]
                with forward_from_cut(anatomy, recording, last, value):
                    classes[block.name] = forward(anatomy.model, images).argmax(1).cpu().numpy()
            parts.append(classes)
            sizes.append(len(classes[blocks[-1].name]))
    gathered = gather((parts, sizes))
    every = [part for process in gathered for part in process[0]]
    order = np.argsort(np.concatenate(image_indices([process[1] for process in gathered])))
    return {b: np.concatenate([part[b.name] for part in every])[order] for b in blocks}


def lens_or_reason(
    anatomy: Anatomy, batches: Iterable[Batch], run: Run
) -> dict[Block, Int[np.ndarray, " n"]] | str:
    """What `lens_predictions` gives, or the sentence that says why it cannot."""
    try:
        return lens_predictions(anatomy, batches, run)
    except InputError as error:
        return f"no logit lens: {error}"
