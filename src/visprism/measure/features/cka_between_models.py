"""Comparison: how alike the blocks of two models are, on the same images."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import zip_longest

from visprism.anatomy import Anatomy, Block, batch_size
from visprism.core.devices import CPU, Compute
from visprism.core.errors import InputError
from visprism.core.processes import share
from visprism.core.provenance import Provenance
from visprism.measure.batches import Batch, image_shape, images_of
from visprism.measure.features.cka import CKAProbe, Similarity, similarity
from visprism.measure.features.observing import (
    Progress,
    measured,
    shown,
    together,
    watched,
)


def compare(
    anatomy_a: Anatomy,
    anatomy_b: Anatomy,
    batches: Iterable[Batch],
    batches_b: Iterable[Batch] | None = None,
    *,
    kernel: str = "linear",
    bandwidth: float = 0.5,
    other_model: str = "second model",
    compute: Compute = CPU,
    progress: Progress | None = None,
    provenance: Provenance | None = None,
) -> Similarity:
    """CKA of each block of one model with each of another, on the same images.

    Costs a pass of both models; see `CKAProbe`, and `observe` for the arguments that are not
    explained here.

    Args:
        anatomy_a: of the first model; its blocks are the column `block` of the result.
        anatomy_b: of the second model; its blocks are the column `other`.
        batches: as the first model wants them.
        batches_b: the same images in the same batches, as the second model wants them; by
            default both models are fed the very same tensors.
        kernel: see `CKAProbe`.
        bandwidth: see `CKAProbe`.
        other_model: name of the second model, for figures.
        compute: device and precision of the forward passes.
        progress: wraps the batches.
        provenance: what is known of the first model and the data.

    Raises:
        InputError: as `observe` and `CKAProbe`; if the models want images of two sizes and are
            fed the same; if the two batches differ in their number of images.
    """
    sizes = [image_shape(anatomy) for anatomy in (anatomy_a, anatomy_b)]
    if batches_b is None and sizes[0] != sizes[1]:
        first, second = ("x".join(map(str, size)) for size in sizes)
        raise InputError(
            f"the first model was dissected with images of {first}, the second with {second}; "
            "dissect both with images of one size, or give each its own batches (batches_b)"
        )
    probe = CKAProbe(kernel, bandwidth=bandwidth)
    seen = largest = 0
    with (
        watched(anatomy_a, [probe], compute) as run_a,
        watched(anatomy_b, [probe], compute) as run_b,
    ):
        own = shown(batches, progress)
        pairs = ((b, b) for b in own) if batches_b is None else _paired(own, share(batches_b))
        for batch_a, batch_b in pairs:
            a = images_of(batch_a, anatomy_a, compute)
            b = images_of(batch_b, anatomy_b, compute)
            if batch_size(a) != batch_size(b):
                raise InputError(
                    f"a batch of {batch_size(a)} images for the first model and of "
                    f"{batch_size(b)} for the second; give both the same images"
                )
            (extracts_a,), (extracts_b,) = run_a(a), run_b(b)
            probe.update(extracts_a | {_second(k): v for k, v in extracts_b.items()})
            seen += batch_size(a)
            largest = max(largest, batch_size(a))
    seen, largest = together([probe], seen, largest)
    blocks_a, blocks_b = (
        [block for block in anatomy if block.layout is not None]
        for anatomy in (anatomy_a, anatomy_b)
    )
    return replace(
        similarity(probe, blocks_a, blocks_b),
        other_model=other_model,
        provenance=measured(provenance, anatomy_a, compute, images=seen, largest=largest),
    )


def _second(block: Block) -> Block:
    """The same block, told from an equal one of the first model."""
    return replace(block, name=f"second model: {block.name}")


def _paired(a: Iterable[Batch], b: Iterable[Batch]) -> Iterable[tuple[Batch, Batch]]:
    for batch_a, batch_b in zip_longest(a, b):
        if batch_a is None or batch_b is None:
            more, fewer = ("first", "second") if batch_b is None else ("second", "first")
            raise InputError(
                f"there are more batches for the {more} model than for the {fewer}; give both "
                "the same images in the same batches"
            )
        yield batch_a, batch_b
