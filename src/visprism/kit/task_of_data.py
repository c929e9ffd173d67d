"""Which task a model is measured on: as the user, the model or the targets state it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from visprism.anatomy.blocks.anatomy import Anatomy
from visprism.anatomy.trace.forward import forward
from visprism.core.errors import InputError
from visprism.core.preprocessing import OUTPUT, Preprocessing
from visprism.core.run import Run
from visprism.core.tasks import (
    CLASSIFICATION,
    TASKS,
    Classification,
    Multilabel,
    Regression,
    Segmentation,
    Task,
    task_named,
)
from visprism.images.images import Images
from visprism.passes.batches import on_device

_OUTPUTS, _SAMPLE = 2, 16  # images whose outputs, and whose targets, are looked at
_PROBLEMS = {
    "multi_label_classification": Multilabel,
    "regression": Regression,
    "single_label_classification": Classification,
}
_FEATURES = ("pooler_output", "image_embeds", "last_hidden_state", "embedding", "features")
_HEADS = ("fc", "head", "classifier", "heads")
_NORMS = ("layer_norm", "batch_norm", "group_norm", "rms_norm")


@dataclass(frozen=True)
class TaskOfData:
    """A task, with images whose targets are as it takes them."""

    task: Task
    images: Sequence[Images]  # the evaluation and the training images
    reason: str = ""  # why the outputs have no outcome


def task_of(
    given: object,
    anatomy: Anatomy,
    images: Sequence[Images],
    preprocessing: Preprocessing | None,
    run: Run,
) -> TaskOfData:
    """The task of a model on these images.

    In this order: as given; as the model states by ``config.problem_type``; as the targets are;
    else classification. Features have no outcome, and outputs of a sigmoid are probabilities of
    labels.
    """
    unknown = TaskOfData(CLASSIFICATION, images)
    if images[0].targets is None and images[0].answers is None:
        return replace(unknown, task=task_named(given) or CLASSIFICATION)
    outputs = _outputs(anatomy.model, images[0], preprocessing, run)
    if given is None and (reason := _features_text(anatomy, outputs)):
        return replace(unknown, reason=reason)
    task = task_named(given) or _recognized(anatomy, outputs, _targets(images[0], _SAMPLE))
    if task.single_class:
        return replace(unknown, task=task)
    try:
        task, first = _with_targets(task, images[0], outputs)
        others = [
            first if other is images[0] else _with_targets(task, other, outputs)[1]
            for other in images
        ]
    except InputError as error:
        return replace(unknown, task=task, reason=str(error).rstrip("."))
    return TaskOfData(task, others)


def _with_targets(task: Task, images: Images, outputs: Tensor) -> tuple[Task, Images]:
    """The task with what it takes from all targets, and images that give its targets."""

    def answers(way: Preprocessing | None, rows: range) -> Tensor:
        return task.targets(images.raw_targets(way, rows), outputs)

    if task.dense:
        answers(images.preprocessing(None), range(min(_SAMPLE, len(images))))
    else:
        task = task.fitted(answers(None, range(len(images))))
    return task, replace(images, answers=answers, digest=images.fingerprint())


def _targets(images: Images, number: int) -> Tensor:
    few = range(min(number, len(images))) if images.targets is None else range(len(images))
    return images.raw_targets(images.preprocessing(None), few)


@torch.no_grad()
def _outputs(
    model: nn.Module, images: Images, preprocessing: Preprocessing | None, run: Run
) -> Tensor:
    batch = images.batches(preprocessing, batch_size=_OUTPUTS, limit=_OUTPUTS)[0]
    compute = run.compute.on(model)
    with compute.borrow(model):
        return forward(model, on_device(batch[0], compute)).detach().cpu()


def _recognized(anatomy: Anatomy, outputs: Tensor, targets: Tensor) -> Task:
    problem = getattr(getattr(anatomy.model, "config", None), "problem_type", None)
    sigmoid = outputs.ndim == 2 and _last_operation(anatomy) == "sigmoid"
    stated = getattr(anatomy.model, "task", None)
    if isinstance(stated, str) and stated in TASKS:
        return TASKS[stated](why="as the model states")
    if problem in _PROBLEMS:
        kind, why = _PROBLEMS[problem], "problem_type of the model"
    elif sigmoid:
        kind, why = Multilabel, "the model ends in a sigmoid"
    elif targets.ndim >= 3:
        kind, why = Segmentation, "targets are masks"
    elif targets.is_floating_point():
        known = targets[~targets.isnan()]
        labels = bool(((known == 0) | (known == 1)).all())
        kind = Multilabel if labels else Regression
        why = "targets are 0 and 1" if labels else "targets are numbers"
    elif targets.ndim == 2:
        kind, why = Multilabel, "targets have several labels"
    elif outputs.ndim == 2 and outputs.shape[1] == 1:
        binary = bool((targets <= 1).all())
        kind = Multilabel if binary else Regression
        why = f"the model returns one number, targets are {'0 and 1' if binary else 'numbers'}"
    else:
        kind, why = Classification, ""
    if kind is Multilabel and sigmoid:
        return Multilabel(probabilities=True, why=f"{why}, whose logits are taken back")
    return kind(why=why)


def _last_operation(anatomy: Anatomy) -> str:
    """The last operation that is not a change of shape."""
    node = anatomy.graph.nodes[anatomy.graph.output]
    while node.role == "layout" and node.inputs:
        node = anatomy.graph.nodes[max(node.inputs)]
    return str(node.op)


def _features_text(anatomy: Anatomy, outputs: Tensor) -> str:
    """Why outputs are features, not classes; empty if they may be classes."""
    model = anatomy.model
    heads = (getattr(model, name, None) for name in _HEADS)
    without = getattr(model, "num_classes", None) == 0 or any(
        isinstance(head, nn.Identity) for head in heads
    )
    named = any(word in str(getattr(model, OUTPUT, "")) for word in _FEATURES)
    normalized = _last_operation(anatomy) in _NORMS
    if outputs.ndim != 2 or not (without or named or normalized):
        return ""
    return (
        f"the model returns {outputs.shape[1]} features, not classes. Analyses of features "
        "run; a model with a head, or task='classification', measures predictions"
    )
