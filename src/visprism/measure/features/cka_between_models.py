"""CKA between the blocks of two models, on the same images."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import zip_longest

from visprism.anatomy import Anatomy, Block, batch_size
from visprism.core.errors import InputError
from visprism.core.processes import share
from visprism.core.run import DEFAULT_RUN, Run
from visprism.measure.features.cka import CKAProbe, similarity
from visprism.passes.features import all_reduce_probes, observing
from visprism.passes.batches import Batch, image_shape, images_of
from visprism.results.similarity import Similarity


def compare(
    anatomy_a: Anatomy,
    anatomy_b: Anatomy,
    batches: Iterable[Batch],
    batches_b: Iterable[Batch] | None = None,
    *,
    kernel: str = "linear",
    bandwidth: float = 0.5,
    other_model: str = "second model",
    run: Run = DEFAULT_RUN,
) -> Similarity:
    """CKA of each block of one model with each of another, on the same images.

    Costs a pass of both models; see `CKAProbe`.

    Args:
        anatomy_a: of the first model; its blocks are the column `block` of the result.
        anatomy_b: of the second model; its blocks are the column `other`.
        batches: images as the first model expects them.
        batches_b: the same images in the same batches, as the second model expects them; by
            default both models get the very same tensors.
        kernel: "linear" or "rbf", see `CKAProbe`.
        bandwidth: of the "rbf" kernel, see `CKAProbe`.
        other_model: name of the second model, for figures.
        run: device, precision, seed, progress and provenance, that of the first model.

    Raises:
        InputError: as `observe` and `CKAProbe`; if the models expect images of two sizes and
        get
            the same; if the two batches differ in their number of images.
    """
    sizes = [image_shape(anatomy) for anatomy in (anatomy_a, anatomy_b)]
    if batches_b is None and sizes[0] != sizes[1]:
        first, second = ("x".join(map(str, size)) for size in sizes)
        raise InputError(
            f"both models must be dissected with images of one size, got {first} and {second}. "
            "Dissect both with images of one size, or give each its own batches (batches_b)."
        )
    probe = CKAProbe(kernel, bandwidth=bandwidth)
    probe.seed = run.seed
    images = largest = 0
    with (
        observing(anatomy_a, [probe], run.compute) as extract_a,
        observing(anatomy_b, [probe], run.compute) as extract_b,
    ):
        batches_a = run.track_share(batches, "observing feature maps")
        pairs = (
            ((batch, batch) for batch in batches_a)
            if batches_b is None
            else _paired(batches_a, share(batches_b))
        )
        for batch_a, batch_b in pairs:
            a = images_of(batch_a, anatomy_a, run.compute)
            b = images_of(batch_b, anatomy_b, run.compute)
            if batch_size(a) != batch_size(b):
                raise InputError(
                    "batches of both models must hold the same images, got a batch of "
                    f"{batch_size(a)} for the first model and of {batch_size(b)} for the second"
                )
            (extracts_a,), (extracts_b,) = extract_a(a), extract_b(b)
            probe.update(extracts_a | {_second(k): v for k, v in extracts_b.items()})
            images += batch_size(a)
            largest = max(largest, batch_size(a))
    images, largest = all_reduce_probes([probe], images, largest)
    blocks_a, blocks_b = (
        [block for block in anatomy if block.layout is not None]
        for anatomy in (anatomy_a, anatomy_b)
    )
    result = similarity(probe, blocks_a, blocks_b)
    origin = run.measured(images=images, batch_size=largest, image_shape=sizes[0])
    return replace(
        result, other_model=other_model, structure_error=float("nan"), provenance=origin
    )


def _second(block: Block) -> Block:
    """The same block, distinct from an equal one of the first model."""
    return replace(block, name=f"second model: {block.name}")


def _paired(a: Iterable[Batch], b: Iterable[Batch]) -> Iterator[tuple[Batch, Batch]]:
    for batch_a, batch_b in zip_longest(a, b):
        if batch_a is None or batch_b is None:
            more, fewer = ("first", "second") if batch_b is None else ("second", "first")
            raise InputError(
                f"batches of both models must hold the same images, got more for the {more} "
                f"model than for the {fewer}"
            )
        yield batch_a, batch_b
