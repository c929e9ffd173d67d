"""Inquiries: models and images, both named by a user, and what is measured of them."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Literal, Protocol, runtime_checkable

import torch

from visprism.anatomy import Anatomy, attentions, costs, dissect, forward
from visprism.data import batches, load_data
from visprism.errors import InputError
from visprism.examine.fields import fields_of, fields_or_note
from visprism.examine.notes import idle, left_out
from visprism.measure.features import (
    AttentionProbe,
    FourierProbe,
    Probe,
    Spectrum,
    VarianceProbe,
    Variances,
    high_frequency,
    observe,
    tally,
)
from visprism.models import LoadedModel, load_model
from visprism.parallel import CPU, Compute
from visprism.preprocessing import Preprocessing
from visprism.report import Examination, check_names
from visprism.result import Provenance, Result
from visprism.rng import stream


@runtime_checkable
class Progress(Protocol):
    """Wraps what is gone through, and shows how far it is under a label."""

    def __call__(self, items: Iterable, label: str) -> Iterable:
        """The same items."""
        ...


@dataclass(frozen=True)
class Inquiry:
    """What to measure, on which images, and how."""

    data: str  # as `load_data` takes it
    analyses: tuple[str, ...] = ("fourier", "variance", "attention", "receptive-field")
    split: str | None = None
    limit: int | None = None  # number of images
    field_images: int | None = 8  # at most, for receptive fields; None: all
    batch_size: int = 16
    size: tuple[int, int] | None = None  # (height, width); None: what each model wants
    skip_bad: bool = False  # leave out images that cannot be read
    seed: int = 0
    compute: Compute = CPU
    protocol: Literal["default", "paper"] = "default"
    profile: Literal["diagonal", "radial"] = "diagonal"
    command: str = ""  # for the provenance


def load_models(
    names: Sequence[str], *, pretrained: bool = False, seed: int = 0
) -> list[LoadedModel]:
    """Each model by name; labels that would be the same give way to full names."""
    models = [load_model(name, pretrained=pretrained, seed=seed) for name in names]
    times = Counter(model.label for model in models)
    return [replace(m, label=m.name) if times[m.label] > 1 else m for m in models]


def take_apart(
    loaded: LoadedModel, *, size: tuple[int, int] | None = None, seed: int = 0
) -> Anatomy:
    """The anatomy of a model, on noise of the size that it wants or that is asked for.

    Raises:
        InputError: if the model fails on images of this size.
    """
    height, width = size or loaded.preprocessing.size
    images = torch.randn(2, 3, height, width, generator=stream(seed, "noise"))
    try:
        with torch.no_grad():
            forward(loaded.model, images)
    except Exception as error:
        own = loaded.preprocessing.size
        advice = (
            f"its own are {own[0]}x{own[1]}: leave --size out, or build it for another size, "
            "as in 'timm:vit_tiny_patch16_224?img_size=64'"
            if size
            else "it is given RGB images in single precision as its only argument: name "
            "another size by --size, or wrap a model that wants something else"
        )
        raise InputError(
            f"{loaded.name} fails on images of {height}x{width}: {str(error).strip()!r}; "
            f"{advice}"
        ) from error
    return dissect(loaded.model, images)


def examine(
    models: Sequence[LoadedModel], inquiry: Inquiry, *, progress: Progress
) -> list[Examination]:
    """Every analysis of every model; what can be wrong is found before the first is measured.

    Raises:
        InputError: if the data cannot be read, or a model fails on it.
    """
    check_names([model.label for model in models])
    image_set = load_data(
        inquiry.data,
        split=inquiry.split,
        limit=inquiry.limit,
        skip_bad=inquiry.skip_bad,
        side=max(_side(_sized(m.preprocessing, inquiry.size)) for m in models),
        seed=inquiry.seed,
        progress=partial(progress, label="reading images"),
    )
    anatomies = [take_apart(m, size=inquiry.size, seed=inquiry.seed) for m in models]
    examinations = []
    for model, anatomy in zip(models, anatomies, strict=True):
        preprocessing = _sized(model.preprocessing, inquiry.size)
        provenance = Provenance(
            model=model.name,
            data=image_set.name,
            preprocessing=str(preprocessing),
            seed=inquiry.seed,
            command=inquiry.command,
            created=datetime.now(UTC).date().isoformat(),
        )
        wanted = [name for name in inquiry.analyses if name in PROBES]
        if len(wanted) > 1 and not attentions(anatomy):  # asked for alone it is an error
            wanted = [name for name in wanted if name != "attention"]
        probes = [PROBES[name](inquiry) for name in wanted]
        notes = [*anatomy.notes, *(note for probe in probes for note in probe.notes(anatomy))]
        how = {"compute": inquiry.compute, "provenance": provenance}
        drawn: list[Result] = []
        if probes:
            results = observe(
                anatomy,
                batches(image_set, preprocessing, batch_size=inquiry.batch_size),
                probes,
                progress=partial(progress, label=f"{model.label}, batches"),
                **how,
            )
            drawn += (one for result in results for one in _with_summaries(result))
            notes += idle(results)
        if "receptive-field" in inquiry.analyses:
            measure = partial(
                fields_of,
                anatomy,
                image_set,
                preprocessing,
                limit=inquiry.field_images,
                batch_size=inquiry.batch_size,
                progress=partial(progress, label=f"{model.label}, receptive fields"),
                **how,
            )
            fields, reasons = fields_or_note(measure) if drawn else (measure(), ())
            drawn += fields
            notes += reasons
        notes += left_out(image_set)
        facts = replace(costs(anatomy), provenance=drawn[0].provenance)
        examinations.append(Examination(model.label, facts, tuple(drawn), tuple(notes)))
    return examinations


PROBES: dict[str, Callable[[Inquiry], Probe]] = {  # by the name of the analysis
    "fourier": lambda inquiry: FourierProbe(inquiry.profile, inquiry.protocol),
    "variance": lambda _: VarianceProbe(),
    "attention": lambda _: AttentionProbe(),
}


def _with_summaries(result: Result) -> tuple[Result, ...]:
    if isinstance(result, Spectrum):
        ends = high_frequency(result)
        return result, ends, tally(ends)
    if isinstance(result, Variances):
        return result, tally(result)
    return (result,)


def _side(preprocessing: Preprocessing) -> int:
    """Side of images that lose nothing when they are resized for the crop."""
    return int(max(preprocessing.size) / preprocessing.crop)


def _sized(preprocessing: Preprocessing, size: tuple[int, int] | None) -> Preprocessing:
    return replace(preprocessing, size=size, crop=1.0) if size else preprocessing
