"""Examination: plan a study, measure, and keep every result as soon as it exists."""

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from visprism.anatomy.trace.forward import copies_of, returned_by
from visprism.core.devices import require_default_device
from visprism.core.errors import InputError
from visprism.core.memory import reused_memory
from visprism.core.options import EFFORTS, Effort
from visprism.core.processes import gather, rank
from visprism.core.run import DEFAULT_RUN, Run
from visprism.kit.analysis import ANALYSES, Analysis
from visprism.kit.inputs import DataOptions, candidates_of, check_names, subjects_of
from visprism.kit.model_on_images import Subject, forget_choice, inputs_of
from visprism.passes.batches import on_device
from visprism.study.console import reported
from visprism.study.events import Listener
from visprism.study.examination import Examination
from visprism.study.merge import with_stored
from visprism.study.store import Store
from visprism.study.study import Study
from visprism.study.study_file import analysis_fields, study_fields, write_study_file


@torch.inference_mode(mode=False)  # of the caller: it has no gradients
def examine(
    models: Any,
    data: Any,
    *,
    analyses: Iterable[str | Analysis | type[Analysis]] | Analysis | str | None = None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    effort: Effort = "quick",
    minutes: int | float | None = None,
    train_data: Any = None,
    preprocessing: Any = None,
    images: DataOptions | None = None,
    device: str | None = None,
    pretrained: bool | None = None,
    output: str | None = None,
    out: Path | str | None = None,
    fresh: bool = False,
    on_error: str = "record",
    run: Run = DEFAULT_RUN,
    listener: Listener | None = None,
) -> Study:
    """Measure several analyses of one or more models on the same images.

    The effort decides on how many images each analysis runs, the same of every model; nothing
    that is measured depends on the speed of the machine. With `out`, each result is written as
    soon as it exists, and the same call resumes an interrupted study; with one more model or
    analysis it computes only what is new. What is stored is always part of the study, also of
    models that are not named.

    Args:
        models: an ``nn.Module`` in evaluation mode, a name such as "timm:resnet18", a loaded
            model, a sequence of these, or a mapping of names to them.
        data: an iterable of ``(images, targets)`` or of images, a ``DataLoader``, a ``Dataset``
            of tensors or PIL images (also of Hugging Face), an `ImageSet`, a path, or a
            name such as "cifar10".
        analyses: names, classes, or instances with options; None for a selection.
        options: options by the name of the analysis: ``{"fourier": {"profile": "radial"}}``.
        effort: "quick" takes about a minute for a model of 4 GMACs on two cores, "standard" ten
            times as long, "full" measures all images. Options that are given neither here nor
            in an instance have their values at this effort.
        minutes: time limit of this call: analyses run in the order of the plan until it is
            reached, and the rest is listed. It never changes how much an analysis measures.
        train_data: images for quantities of the training loss; by default the training split
            where named data has one, and `data` elsewhere.
        preprocessing: resize, crop and normalization as a `Preprocessing`, a configuration of
            timm, weights of torchvision, or an image processor of Hugging Face; by default what
            each model states, or a torchvision pipeline ends in. Where nothing states them,
            pixels lie in [0, 1], and plan, page and provenance say so.
        images: split, number, size, normalization and batch size; see `DataOptions`.
        device: as torch names it, such as "cuda:1"; by default `run`'s device, or where each
            model lies. Models that are given by name lie on the accelerator if there is one.
        pretrained: of models that are given by name, False for random weights and True for
            published ones; None leaves it to `load_model`.
        output: name, or number, of the output that holds the logits, of models that return
            several tensors; it is kept on the models. None: ``logits``, the only vector, or the
            only one with the number of classes of the data. Plan, page and provenance have it.
        out: folder for results; None keeps them in memory.
        fresh: forget what an earlier run left in `out`.
        on_error: "record" keeps a failure as data and goes on; "raise" raises it.
        run: device, precision, seed and progress; with a deadline, measurements end by then
            even if `minutes` are left.
        listener: is given each event of the study as it happens. At a terminal and in a
            notebook the plan, the progress and failures are printed on stderr, unless a
            listener or a progress is given.
    """
    if minutes is not None and not minutes > 0:
        raise InputError(f"minutes must be a positive number or None, got {minutes!r}")
    if effort not in EFFORTS:
        raise InputError(f"effort must be one of {', '.join(EFFORTS)}, got {effort!r}")
    if on_error not in ("record", "raise"):
        raise InputError(f"on_error must be 'record' or 'raise', got {on_error!r}")
    require_default_device()
    run = run.at(device)
    unchanged_draws = torch.random.fork_rng(devices=[])  # of a model that draws some
    with reused_memory(), unchanged_draws, reported(run, listener) as (run, notify):
        begin = time.monotonic()
        chosen = ANALYSES.chosen(analyses, options, effort)
        images = images or DataOptions()
        check_names(data, train_data, images)
        candidates = candidates_of(models, pretrained=pretrained, output=output, run=run)
        subjects = subjects_of(
            candidates,
            data,
            train_data,
            images,
            preprocessing=preprocessing,
            run=run,
        )
        if output is not None and all(_returns_one_tensor(s, run) for s in subjects):
            raise InputError(f"output must be None for models of one tensor, got {output!r}")
        timed = run if minutes is None else run.ending_by(begin + 60.0 * minutes)
        store = _open_store(Path(out) if out is not None else None, subjects, run, fresh=fresh)
        fields = study_fields(models, data, train_data, images, run)
        examination = Examination(
            subjects,
            chosen,
            timed,
            store,
            notify,
            on_error,
            named=analyses is not None,
            effort=effort,
            budget=None if minutes is None else 60.0 * minutes,
        )
        try:
            if store.folder is not None and store.writes and fields and preprocessing is None:
                fields |= {
                    "pretrained": pretrained,
                    "output": output,
                    "effort": effort,
                    "minutes": minutes,
                }
                fields |= analysis_fields(chosen, effort, named=analyses is not None)
                write_study_file(store.folder, fields)
            store.header.pop("alarms", None)  # of the run before
            before = {**store.header}
            examination.perform()
            study = examination.result(seconds=time.monotonic() - begin)
            return with_stored(study, store, before)
        finally:
            store.close()
            for subject in subjects:
                forget_choice(subject.model)


@torch.no_grad()
def _returns_one_tensor(subject: Subject, run: Run) -> bool:
    """Whether there is no choice between several outputs."""
    compute = run.compute.on(subject.model)
    images = copies_of(on_device(inputs_of(subject.batches(1)[0]), compute))
    with compute.borrow(subject.model):
        return isinstance(returned_by(subject.model, images), torch.Tensor)


def _open_store(
    folder: Path | None, subjects: Sequence[Subject], run: Run, *, fresh: bool
) -> Store:
    images, training = subjects[0].images, subjects[0].training_images
    identity = {
        "number of images": len(images),
        "images": images.fingerprint(),
        "training images": training.fingerprint(),
        "seed": run.seed,
    }
    if any(other != identity for other in gather(identity)):
        raise InputError(
            "data must be the same images in every process, since the processes share them, "
            "got other images in some. Pass a loader whose sampler does not share them."
        )
    # The first of several processes writes; the others read what was there before.
    if rank() == 0:
        store = Store.open(folder, identity, fresh=fresh)
        gather(0)
        return store
    gather(0)
    return Store.open(folder, identity, fresh=fresh, writes=False)
