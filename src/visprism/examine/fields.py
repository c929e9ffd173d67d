"""Receptive fields as a part of an examination: measured on few of the images."""

from collections.abc import Callable, Iterable

from visprism.anatomy import Anatomy
from visprism.core.devices import Compute
from visprism.core.errors import InputError
from visprism.core.preprocessing import Preprocessing
from visprism.core.provenance import Provenance
from visprism.data import ImageSet, batches
from visprism.data.image_set import balanced
from visprism.measure.features import receptive_field
from visprism.results.base import Result


def fields_of(
    anatomy: Anatomy,
    image_set: ImageSet,
    preprocessing: Preprocessing,
    *,
    limit: int | None,
    batch_size: int,
    compute: Compute,
    progress: Callable[[Iterable], Iterable],
    provenance: Provenance,
) -> tuple[Result, ...]:
    """The receptive fields on at most `limit` images, as many of each class; see there."""
    some = image_set
    if limit is not None and limit < len(image_set):
        chosen = balanced(image_set.targets, limit, seed=provenance.seed)
        some = image_set.subset(chosen)
    return receptive_field(
        anatomy,
        batches(some, preprocessing, batch_size=batch_size),
        seed=provenance.seed,
        compute=compute,
        progress=progress,
        provenance=provenance,
    )


def fields_or_note(
    measure: Callable[[], tuple[Result, ...]],
) -> tuple[tuple[Result, ...], tuple[str, ...]]:
    """The results; or none and the reason as a note, where a model cannot be differentiated.

    Other analyses of the same model are not lost for that.
    """
    try:
        return measure(), ()
    except InputError as error:
        return (), (f"Without receptive fields: {error}.",)
