"""Trials as parts of an examination: lesions, noise, attacks, cue conflicts."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from visprism.anatomy import attentions, costs
from visprism.core.errors import InputError
from visprism.examine.inquiry import Inquiry, Progress
from visprism.examine.materials import Materials, prepare
from visprism.examine.notes import left_out
from visprism.examine.outputs import Found
from visprism.figures import panel, save_figure
from visprism.measure.features import AttentionProbe, AttentionStatistics, observe
from visprism.measure.outputs import (
    Ablations,
    Attack,
    ablation,
    adversarial,
    by_category,
    classes_of,
    fourier_sensitivity,
    frequency_noise,
    joint_ablations,
    predict,
    shape_bias,
)
from visprism.models import LoadedModel
from visprism.report import Examination
from visprism.report.examination import slug

Trial = Callable[[Materials, Inquiry, Progress], Found]


def trials(
    models: Sequence[LoadedModel], inquiry: Inquiry, trial: Trial, *, progress: Progress
) -> list[Examination]:
    """One trial of each model.

    Raises:
        InputError: if the data cannot be read or has no labels, or as the trial says.
    """
    found = []
    for each in prepare(models, inquiry, progress=progress):
        results, notes = trial(each, inquiry, progress)
        facts = replace(costs(each.anatomy), provenance=results[0].provenance)
        notes = (*notes, *left_out(each.image_set))
        found.append(Examination(each.model.label, facts, results, notes))
    return found


def lesions_of(
    materials: Materials,
    inquiry: Inquiry,
    progress: Progress,
    **options: Any,  # noqa: ANN401 (of `ablation`)
) -> Found:
    """The lesions of one model; of one with attention, its statistics beside them.

    Args:
        materials: the model and its images.
        inquiry: seed, batch size and device.
        progress: shown over batches.
        **options: of `ablation`.
    """
    results, notes = lesions_alone(materials, inquiry, progress, **options)
    if attentions(materials.anatomy):
        results += observe(
            materials.anatomy,
            materials.batches(inquiry.batch_size),
            [AttentionProbe()],
            compute=inquiry.compute,
            progress=partial(progress, label=f"{materials.model.label}, attention"),
            provenance=materials.provenance(inquiry),
        )
    return results, (*materials.anatomy.notes, *notes)


def lesions_alone(
    materials: Materials,
    inquiry: Inquiry,
    progress: Progress,
    **options: Any,  # noqa: ANN401 (of `ablation`)
) -> Found:
    """The lesions of one model, without anything beside them."""
    measured = ablation(
        materials.anatomy,
        materials.batches(inquiry.batch_size),
        **options,
        **_common(materials, inquiry, progress, "lesions"),
    )
    notes = (f"Not lesioned: {measured.left_out}.",) if measured.left_out else ()
    joint = (joint_ablations(measured),) if (measured.removed == "several").any() else ()
    return (measured, *joint), notes


def noise_of(
    materials: Materials,
    inquiry: Inquiry,
    progress: Progress,
    *,
    reach: int = 0,
    step: int = 1,
    **options: Any,  # noqa: ANN401 (of `frequency_noise`)
) -> Found:
    """What noise of each band costs; with `reach` above 0 the Fourier sensitivity too."""
    common = _common(materials, inquiry, progress, "noise") | _standard(materials)
    batches = materials.batches(inquiry.batch_size)
    measured = frequency_noise(materials.model.model, batches, **options, **common)
    empty = measured.left_out
    notes = (f"No frequency of these images lies in the bands at {empty}.",) if empty else ()
    if reach:
        common |= _common(materials, inquiry, progress, "waves")
        model = materials.model.model
        rms = options.get("rms", 0.1)
        waves = fourier_sensitivity(model, batches, reach=reach, step=step, rms=rms, **common)
        return (measured, waves), notes
    return (measured,), notes


def attacks_of(
    materials: Materials, inquiry: Inquiry, progress: Progress, *, attacks: Sequence[Attack]
) -> Found:
    """Accuracy under each attack."""
    common = _common(materials, inquiry, progress, "attacks") | _standard(materials)
    batches = materials.batches(inquiry.batch_size)
    return (adversarial(materials.model.model, batches, attacks, **common),), ()


def shape_bias_of(materials: Materials, inquiry: Inquiry, progress: Progress) -> Found:
    """Whether a model goes by shape or texture.

    Raises:
        InputError: if the images have no texture of their own, or the model has classes that
            are not those of the images.
    """
    image_set = materials.image_set
    if image_set.textures is None:
        raise InputError(
            f"{image_set.name} does not say which texture each image has; take "
            "'shapes?cues=conflict', or 'cue_conflict:DIR' with files such as cat1-car2.png"
        )
    predictions = predict(
        materials.model.model,
        materials.batches(inquiry.batch_size),
        compute=inquiry.compute,
        progress=partial(progress, label=f"{materials.model.label}, batches"),
        provenance=materials.provenance(inquiry),
    )
    classes = classes_of(image_set.class_names, predictions.num_classes)
    joined = by_category(predictions, classes)
    return (shape_bias(joined, image_set.textures, image_set.class_names),), ()


def write_beside_attention(examinations: Sequence[Examination], folder: Path) -> None:
    """Ablations over the same depth as attention, ``lesions-and-attention-<model>``."""
    for each in examinations:
        cut = next((r for r in each.results if isinstance(r, Ablations)), None)
        looks = next((r for r in each.results if isinstance(r, AttentionStatistics)), None)
        if cut is None or looks is None:
            continue
        for beside in ("nmi", "distance"):
            stem = f"lesions-and-attention-{beside}-{slug(each.name)}"
            drawn = panel([cut], names=[each.name], attention=looks, beside=beside)
            save_figure(drawn, folder / "figures" / stem)


def _common(
    materials: Materials, inquiry: Inquiry, progress: Progress, label: str
) -> dict[str, Any]:
    return {
        "seed": inquiry.seed,
        "compute": inquiry.compute,
        "progress": partial(progress, label=f"{materials.model.label}, {label}"),
        "provenance": materials.provenance(inquiry),
    }


def _standard(materials: Materials) -> dict[str, Any]:
    return {"mean": materials.preprocessing.mean, "std": materials.preprocessing.std}
