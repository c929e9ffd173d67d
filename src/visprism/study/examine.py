"""Examination: plan a study, measure, and keep every result as soon as it exists."""

import time
from collections.abc import Sequence
from pathlib import Path

import torch

from visprism.anatomy.trace.forward import copies_of, returned_by
from visprism.core.devices import require_default_device
from visprism.core.errors import InputError
from visprism.core.memory import reused_memory
from visprism.core.processes import gather, rank
from visprism.core.run import Run
from visprism.kit.analysis import ANALYSES
from visprism.kit.inputs import candidates_of, check_names, subjects_of, ungrouped
from visprism.kit.model_on_images import Subject, forget_choice, inputs_of
from visprism.passes.batches import on_device
from visprism.study.console import reported
from visprism.study.examination import Examination
from visprism.study.merge import with_stored
from visprism.study.record import Header
from visprism.study.request import StudyRequest, arguments_of
from visprism.study.store import Store
from visprism.study.study import Study
from visprism.study.study_file import write_study_file


@arguments_of(StudyRequest)
@torch.inference_mode(mode=False)  # of the caller: it has no gradients
def examine(request: StudyRequest) -> Study:  # noqa: D417 (fields of the request)
    """Measure several analyses of one or more models on the same images.

    The effort decides on how many images each analysis runs, the same of every model; nothing
    that is measured depends on the speed of the machine. With `out`, each result is written as
    soon as it exists, and the same call resumes an interrupted study; with one more model or
    analysis it computes only what is new. What is stored is always part of the study, also of
    models that are not named.

    Args:
        models: an ``nn.Module`` in evaluation mode, a name such as "timm:resnet18", a loaded
            model, a sequence of these, or a mapping of names to them. A name may have a
            sequence of models, trained seeds of one architecture: it is one group with
            intervals over seeds.
        data: an iterable of ``(images, targets)`` or of images, a ``DataLoader``, a ``Dataset``
            of tensors or PIL images (also of Hugging Face), an `ImageSet`, a path, or a
            name such as "cifar10".
        analyses: names, classes, or instances with options; None for a selection.
        options: options by the name of the analysis: ``{"fourier": {"profile": "radial"}}``.
            Those that are given neither here nor in an instance have their values at the
            effort.
        preprocessing: resize, crop and normalization as a `Preprocessing`, a configuration of
            timm, weights of torchvision, or an image processor of Hugging Face; by default what
            each model states, or a torchvision pipeline ends in. Where nothing states them,
            pixels lie in [0, 1], and plan, page and provenance say so.
        out: folder for results; None keeps them in memory.
        on_error: "record" keeps a failure as data and goes on; "raise" raises it.
        run: device, precision and seed in one, and progress; with a deadline, measurements end
            by then even if `minutes` are left.
        listener: is given each event of the study as it happens. At a terminal and in a
            notebook the plan, the progress and failures are printed on stderr, unless a
            listener or a progress is given.
    """
    require_default_device()
    unchanged_draws = torch.random.fork_rng(devices=[])  # of a model that draws some
    reporting = reported(request.how(), request.listener)
    with reused_memory(), unchanged_draws, reporting as (run, notify):
        begin = time.monotonic()
        chosen = ANALYSES.chosen(request.analyses, request.options, request.effort)
        check_names(request.data, request.train_data, request.images)
        models, groups = ungrouped(request.models)
        candidates = candidates_of(
            models, pretrained=request.pretrained, output=request.output, run=run
        )
        subjects = subjects_of(
            candidates,
            request.data,
            request.train_data,
            request.images,
            preprocessing=request.preprocessing,
            run=run,
        )
        if request.output is not None and all(_returns_one_tensor(s, run) for s in subjects):
            raise InputError(
                f"output must be None for models of one tensor, got {request.output!r}"
            )
        seconds = None if request.minutes is None else 60.0 * request.minutes
        timed = run if seconds is None else run.ending_by(begin + seconds)
        out = None if request.out is None else Path(request.out)
        store = _open_store(out, subjects, run, fresh=request.fresh)
        examination = Examination(
            subjects,
            chosen,
            timed,
            store,
            notify,
            request.on_error,
            named=request.analyses is not None,
            effort=request.effort,
            budget=seconds,
        )
        try:
            if store.folder is not None and store.writes:
                write_study_file(store.folder, request, chosen, run)
            store.header.pop("alarms", None)  # of the run before
            before: Header = {**store.header}
            if groups:
                store.header["groups"] = groups
            examination.perform()
            study = examination.result(seconds=time.monotonic() - begin)
            return Study.of(with_stored(study, store, before))
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
    identity: Header = {
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
