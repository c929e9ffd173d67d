"""Weights alone as a part of an examination: what of them the model has."""

from contextlib import suppress

from visprism.anatomy import Anatomy
from visprism.core.errors import InputError
from visprism.core.provenance import Provenance
from visprism.measure.weights import patch_filters, positional_similarity
from visprism.results.base import Result


def weights_of(anatomy: Anatomy, provenance: Provenance) -> tuple[Result, ...]:
    """Filters and positions; without a word on those that the model does not have.

    That a residual network has no table of positions is no fault of anything.
    """
    found: list[Result] = []
    for measure in (patch_filters, positional_similarity):
        with suppress(InputError):
            found.append(measure(anatomy, provenance=provenance))
    return tuple(found)
