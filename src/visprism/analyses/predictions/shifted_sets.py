"""Stored sets of shifted images that are options of analyses: their batches and classes."""

from collections.abc import Sequence
from itertools import chain

from visprism.analyses.subject import Subject
from visprism.core.errors import InputError
from visprism.data.open_data import load_data
from visprism.data.stored import condition_of, stored_conditions
from visprism.data.study_images import ordered
from visprism.measure.outputs.distribution_shift import ShiftedImages


def read_shifted(
    specs: Sequence[str], subject: Subject, *, seed: int
) -> dict[str, ShiftedImages]:
    """Each set by its name, with at most as many images as the subject measures."""
    sets = {}
    for spec in chain.from_iterable(map(stored_conditions, specs)):
        images = load_data(spec, limit=subject.num_images, seed=seed)
        if images.num_classes != subject.num_classes:
            raise InputError(
                f"{spec} must have the {subject.num_classes} classes of the model, got "
                f"{images.num_classes}"
            )
        batches = ordered(images, seed=seed).batches(
            subject.known_preprocessing, batch_size=subject.batch_size
        )
        sets[spec] = ShiftedImages(batches, images.class_subset, *condition_of(spec))
    return sets
