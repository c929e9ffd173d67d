"""Examinations: every analysis that an inquiry asks for, of every model."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations

from visprism.anatomy import attentions, costs
from visprism.core.errors import InputError
from visprism.examine.budget import labelled_or_note
from visprism.examine.fields import fields_of, fields_or_note
from visprism.examine.inquiry import Inquiry, Progress
from visprism.examine.materials import Materials, prepare
from visprism.examine.notes import idle, left_out
from visprism.examine.weights import weights_of
from visprism.measure.features import (
    AttentionProbe,
    CKAProbe,
    FourierProbe,
    Probe,
    Similarity,
    Spectrum,
    VarianceProbe,
    Variances,
    block_structure,
    compare,
    high_frequency,
    observe,
    tally,
)
from visprism.measure.features.hsic import FEWEST
from visprism.models import LoadedModel
from visprism.report import Examination
from visprism.results.base import Result

Pair = tuple[str, str]


def examine(
    models: Sequence[LoadedModel], inquiry: Inquiry, *, progress: Progress
) -> list[Examination]:
    """Every analysis of every model; what can be wrong is found before the first is measured.

    Raises:
        InputError: if the data cannot be read, or a model fails on it.
    """
    materials = prepare(models, inquiry, progress=progress)
    return examine_prepared(materials, inquiry, progress=progress)


def examine_prepared(
    materials: Sequence[Materials], inquiry: Inquiry, *, progress: Progress
) -> list[Examination]:
    """Every analysis of models that are taken apart already.

    Raises:
        InputError: if a model fails on the data.
    """
    return [_examined(each, inquiry, progress=progress) for each in materials]


def examine_and_compare(
    models: Sequence[LoadedModel], inquiry: Inquiry, *, progress: Progress
) -> tuple[list[Examination], dict[Pair, Similarity]]:
    """Every analysis of every model, and the CKA of each two of them, by their labels.

    The two see the same images, each as it wants them.

    Raises:
        InputError: as `examine`.
    """
    materials = prepare(models, inquiry, progress=progress)
    return examine_prepared(materials, inquiry, progress=progress), {
        (a.model.label, b.model.label): _compared(a, b, inquiry, progress=progress)
        for a, b in combinations(materials, 2)
    }


def _examined(materials: Materials, inquiry: Inquiry, *, progress: Progress) -> Examination:
    anatomy, label = materials.anatomy, materials.model.label
    probes, notes = _probes(inquiry, materials)
    notes += [*anatomy.notes, *(note for probe in probes for note in probe.notes(anatomy))]
    drawn: list[Result] = []
    if probes:
        results = observe(
            anatomy,
            materials.batches(inquiry.batch_size),
            probes,
            compute=inquiry.compute,
            progress=partial(progress, label=f"{label}, batches"),
            provenance=materials.provenance(inquiry),
        )
        drawn += (one for result in results for one in _with_summaries(result))
        notes += idle(results)
    if "receptive-field" in inquiry.analyses:
        measure = partial(
            fields_of,
            anatomy,
            materials.image_set,
            materials.preprocessing,
            limit=inquiry.field_images,
            batch_size=inquiry.batch_size,
            compute=inquiry.compute,
            progress=partial(progress, label=f"{label}, receptive fields"),
            provenance=materials.provenance(inquiry),
        )
        fields, reasons = fields_or_note(measure) if drawn else (measure(), ())
        drawn += fields
        notes += reasons
    about = materials.provenance(inquiry)
    if "weights" in inquiry.analyses:
        drawn += weights_of(anatomy, replace(about, data="", preprocessing=""))
    labeled, reasons = labelled_or_note(materials, inquiry, progress=progress)
    drawn += labeled
    notes += [*reasons, *left_out(materials.image_set)]
    facts = replace(costs(anatomy), provenance=drawn[0].provenance if drawn else about)
    return Examination(label, facts, tuple(drawn), tuple(notes))


def _compared(
    a: Materials, b: Materials, inquiry: Inquiry, *, progress: Progress
) -> Similarity:
    return compare(
        a.anatomy,
        b.anatomy,
        a.batches(inquiry.batch_size),
        b.batches(inquiry.batch_size),
        kernel=inquiry.kernel,
        other_model=b.model.name,
        compute=inquiry.compute,
        progress=partial(progress, label=f"{a.model.label} and {b.model.label}"),
        provenance=replace(
            a.provenance(inquiry),
            model=f"{a.model.name} and {b.model.name}",
            preprocessing=" and ".join(
                dict.fromkeys(str(each.preprocessing) for each in (a, b))
            ),
        ),
    )


def _probes(inquiry: Inquiry, materials: Materials) -> tuple[list[Probe], list[str]]:
    """A probe for each analysis, and what to say of an analysis that there cannot be.

    Raises:
        InputError: if that leaves none.
    """
    makers: dict[str, Callable[[], Probe]] = {
        "fourier": lambda: FourierProbe(profile=inquiry.profile, protocol=inquiry.protocol),
        "variance": VarianceProbe,
        "attention": AttentionProbe,
        "cka": lambda: CKAProbe(inquiry.kernel),
    }
    analyses, notes = list(inquiry.analyses), []
    if len(analyses) > 1 and not attentions(materials.anatomy):  # alone it is an error
        analyses = [name for name in analyses if name != "attention"]
    most = min(inquiry.batch_size, len(materials.image_set))
    if "cka" in analyses and most < FEWEST:
        few = (
            f"CKA compares images within a batch and needs at least {FEWEST} in one, got {most}"
            f"; use --batch-size {FEWEST} or more, and as many images"
        )
        analyses.remove("cka")
        if not analyses:
            raise InputError(few)
        notes.append(f"No similarity of blocks is shown: {few}.")
    return [makers[name]() for name in analyses if name in makers], notes


def _with_summaries(result: Result) -> tuple[Result, ...]:
    if isinstance(result, Spectrum):
        ends = high_frequency(result)
        return result, ends, tally(ends)
    if isinstance(result, Variances):
        return result, tally(result)
    if isinstance(result, Similarity):
        return result, block_structure(result)
    return (result,)
