"""Subjects: a dissected model, the images it is measured on, and the metadata of both."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain
from typing import Any

import torch
from jaxtyping import UInt8
from torch import Tensor, nn

from visprism.anatomy.blocks.anatomy import Anatomy
from visprism.anatomy.blocks.attention import attentions
from visprism.anatomy.blocks.dissect import dissect
from visprism.anatomy.trace.forward import SeveralOutputsError, errors_of_model, pixels
from visprism.core.class_names import ModelClasses
from visprism.core.errors import InputError
from visprism.core.memory import return_free_memory
from visprism.core.preprocessing import OUTPUT, Preprocessing
from visprism.core.run import DEFAULT_RUN, Run
from visprism.core.tasks import CLASSIFICATION, Task
from visprism.estimates.text import number_of
from visprism.images.batches import Change, fixed_augmentation
from visprism.images.class_names import matched
from visprism.images.images import Images
from visprism.kit.needs import Needs
from visprism.passes.batches import check_whole
from visprism.passes.forward_passes import default_batch_size
from visprism.passes.predict import predict
from visprism.passes.predictions import Predictions
from visprism.table.result import Result


@dataclass(eq=False)
class OutputPasses:
    """A model's clean predictions of the first images, in full batches."""

    clean: Predictions | None = None

    def predictions(self, subject: "Subject", run: Run) -> Predictions:
        """The model's predictions of the unchanged evaluation images.

        Images of an earlier call are not computed again. Batches are always full, except for
        the last of all images, so that logits do not depend on the order of the calls.
        """
        number = subject.num_images
        size = subject.size_of_outputs(run)
        rows = 0 if self.clean is None else len(self.clean)
        if rows < number:
            batches = subject.limited(None).output_batches(run)
            missing = batches[rows // size : -(-number // size)]
            self.clean = _joined(self.clean, predict(subject.model, missing, run=run))
        assert self.clean is not None
        of_pass = self.clean.provenance
        origin = run.measured(
            images=number, batch_size=of_pass.batch_size, image_shape=of_pass.image_shape
        )
        part = self.clean.subset(torch.arange(number))
        return replace(part, provenance=origin)


def _joined(first: Predictions | None, second: Predictions) -> Predictions:
    if first is None:
        return second
    return replace(
        first,
        logits=torch.cat([first.logits, second.logits]),
        targets=torch.cat([first.targets, second.targets]),
    )


BATCH_SIZE = 16  # images of a forward pass over feature maps, by default


@dataclass(frozen=True)
class Subject:
    """One model of a study and its images: the input of every analysis."""

    name: str  # as the user names the model
    anatomy: Anatomy
    images: Images  # the evaluation images
    training_images: Images  # the same where the data has one part only
    preprocessing: Preprocessing | None = None  # None: unknown, pixels cannot be changed
    tensors: str = ""  # how tensors are normalized and who says so; "" of images
    notes: tuple[str, ...] = ()  # on the images and their classes, for the plan and the page
    task: Task = CLASSIFICATION
    without_outcome: str = ""  # why outputs cannot be compared with targets
    unmatched: str = ""  # why targets are no outputs of the model, by their names
    classes: ModelClasses = field(default_factory=ModelClasses, repr=False)  # of the outputs
    spec: str = ""  # how to load the model again; "" for a module from Python
    trained: bool = True  # False: the weights are random
    weight_decay: float | None = None  # of the recipe that the checkpoint was trained by
    decayed: str = "all"  # the parameters that the recipe's weight decay applies to
    limit: int | None = None  # number of images to measure; None: all
    batch_size: int = BATCH_SIZE  # of passes over feature maps, and of mini-batches
    output_batch_size: int | None = None  # of passes that return logits only; None: by pixels
    passes: OutputPasses = field(default_factory=OutputPasses, repr=False, compare=False)

    @property
    def model(self) -> nn.Module:
        """The model itself, in evaluation mode."""
        return self.anatomy.model

    @property
    def num_classes(self) -> int:
        """Number of classes that the model predicts; 0 without a vector of logits."""
        return num_outputs(self.anatomy)

    @property
    def known_preprocessing(self) -> Preprocessing:
        """The preprocessing, for analyses that change pixels; see `Needs.PIXELS`."""
        if self.preprocessing is None:
            raise InputError(
                "preprocessing must be known where pixels are changed, got None. "
                "Pass preprocessing=Preprocessing(...)."
            )
        return self.preprocessing

    @property
    def num_images(self) -> int:
        """Number of evaluation images that are measured."""
        return min(len(self.images), self.limit or len(self.images))

    def limited(self, number: int | None) -> "Subject":
        """The same subject with at most `number` images, the first ones."""
        return replace(self, limit=number)

    def with_outputs(self, images: Images) -> Images:
        """Other images, with targets that are outputs of this model, as names state."""
        match = matched(images, self.classes, self.num_classes)
        if match.reason:
            raise InputError(match.reason)
        return match.images

    def in_mini_batches(self, size: int) -> "Subject":
        """The same subject without the training images that do not fill a mini-batch.

        Mini-batches of different sizes have different curvature. Fewer images than one
        mini-batch are all kept.
        """
        number = min(len(self.training_images), self.limit or len(self.training_images))
        return self.limited(number - number % size or number)

    def batches(self, batch_size: int | None = None, change: Change | None = None) -> Sequence:
        """The evaluation images as the model needs them, the same in every pass."""
        return self.images.batches(
            self.preprocessing,
            batch_size=batch_size or self.batch_size,
            limit=self.limit,
            change=change,
        )

    def output_batches(self, run: Run, change: Change | None = None) -> Sequence:
        """The evaluation images in batches for passes that return logits only.

        Their pixels are changed on the GPU where the run has one. Other accelerators would
        compile each change first.
        """
        device = run.compute.torch_device
        size = self.size_of_outputs(run)
        if change is None or device.type != "cuda":
            return self.batches(size, change)
        return self.batches(size, lambda crops, rows: change(crops.to(device), rows))

    def size_of_outputs(self, run: Run) -> int:
        """Number of images in such a batch."""
        shape = self.anatomy.image_shape
        return self.output_batch_size or default_batch_size(shape, run.compute)

    def predictions(self, run: Run) -> Predictions:
        """The model's predictions of the evaluation images, computed once for all analyses."""
        return self.passes.predictions(self, run)

    def training_batches(self, batch_size: int | None = None) -> Sequence:
        """The training images, for quantities of the training loss."""
        return self.training_images.batches(
            self.preprocessing, batch_size=batch_size or self.batch_size, limit=self.limit
        )

    def augmented_batches(self, seed: int, batch_size: int | None = None) -> Sequence:
        """Training images augmented as by the strong recipe, with soft targets."""
        if self.training_images.image_set is None or self.preprocessing is None:
            raise InputError(
                "data must be images for augmentation, got tensors. Pass an ImageSet or a name."
            )
        return fixed_augmentation(
            self.training_images.first(self.limit),
            self.preprocessing,
            batch_size or self.batch_size,
            self.num_classes,
            seed=seed,
        )

    def pixel_batches(self, batch_size: int | None = None) -> Iterator[tuple[range, Tensor]]:
        """Pixels of the evaluation images in eight bits, with their indices."""
        step = batch_size or self.batch_size
        for start in range(0, self.num_images, step):
            stop = min(start + step, self.num_images)
            yield range(start, stop), self.images.pixels(self.preprocessing, start, stop)

    def pixels_of(self, index: int) -> UInt8[Tensor, "c h w"]:
        """Pixels of one evaluation image in eight bits."""
        return self.images.pixels(self.preprocessing, index, index + 1)[0]

    def named(self, run: Run, *, training: bool = False, augmented: bool = False) -> Run:
        """The run on the device of this model, with it and its data in the provenance."""
        images = self.training_images if training else self.images
        run = replace(run, task=self.task)
        return run.on(self.model).named(
            self.spec or self.name,
            f"{images.name} ({images.split})" if images.split else images.name,
            task=self.task.name,
            split="augmented training" if augmented else images.split,
            preprocessing=self._preparation,
            created=datetime.now(UTC).date().isoformat(),
        )

    def preparation(self, run: Run) -> str:
        """How the model is given the images, where, and the user's file that builds it."""
        file, python, _ = self.spec.partition(".py:")
        code = f"; runs {file}.py" if python else ""
        compute = run.compute.on(self.model)
        place = f"{compute.precision} on {compute.device}"
        images = number_of(self.num_images, "image")
        why = f" ({self.task.why})" if self.task.why else ""
        task = "" if self.task == CLASSIFICATION else f"; task: {self.task.name}{why}"
        return f"{self.name}: {images}, {self._preparation}; {place}{task}{code}"

    @property
    def _preparation(self) -> str:
        chosen = getattr(self.model, OUTPUT, "")  # in provenance, plan and page
        way = self.tensors or str(self.preprocessing)
        return f"{way}, logits: output {chosen}" if chosen else way

    def release(self) -> None:
        """Return free memory to the system."""
        return_free_memory()

    def missing(self, needs: Needs) -> str | None:
        """Which of the needs is not met, as a sentence; None if all are."""
        if Needs.FEATURES in needs and all(block.layout is None for block in self.anatomy):
            return "no block of the model has a feature map on a spatial grid"
        if Needs.ATTENTION in needs and (reason := self.without_attention()):
            return reason
        if Needs.LABELS in needs and self.images.targets is None:
            return f"there are no labels in {self.images.name}"
        if Needs.OUTCOMES in needs and (reason := self._without_outcomes()):
            return reason
        if Needs.TARGETS in needs:
            # A category of shape and texture may be several classes of the model.
            reason = self._without_targets(categories=Needs.TEXTURES in needs)
            if reason:
                return reason
        if Needs.PIXELS in needs and isinstance(self.images.tensors, Mapping):
            return "the model takes several inputs, so no pixels can be changed"
        if Needs.PIXELS in needs and self.preprocessing is None:
            return (
                "the normalization of the images is unknown: neither the model nor the "
                "transform of the data states it. Pass preprocessing=Preprocessing(size, "
                "mean=..., std=...)"
            )
        if Needs.TEXTURES in needs and self.images.textures is None:
            return f"there is no texture of each image in {self.images.name}"
        return None

    def too_few_images(self, fewest: int) -> str | None:
        """Why an analysis of at least `fewest` images cannot run; None if it can."""
        if self.num_images >= fewest:
            return None
        return f"it needs at least {fewest} images, got {self.num_images}"

    def without_attention(self) -> str | None:
        """Why no attention weights can be read; None if they can."""
        if attentions(self.anatomy):
            return None
        return "the model has no attention whose weights can be read"

    def without_classes(self) -> str | None:
        """Why an output is not one logit for each of several classes; None if it is."""
        if not self.num_classes:
            return "the model does not return one vector of logits per image"
        if self.num_classes == 1:
            return (
                "the model returns one logit per image, not one per class. Return two logits, "
                "0 and the given one, to measure a binary classifier"
            )
        return None

    def _without_outcomes(self) -> str | None:
        if self.task.single_class:
            return self._without_targets(categories=False)
        return self.without_outcome or None

    def _without_targets(self, *, categories: bool) -> str | None:
        if self.without_outcome:
            return self.without_outcome
        if not self.task.single_class:
            why = f" ({self.task.why})" if self.task.why else ""
            return (
                f"it measures one class for each image, and the task is {self.task.name}{why}"
            )
        if self.images.targets is None:
            data, split = self.images.name, self.images.split
            data += f" ({split}). Choose a split with labels" if split else ""
            return self.images.without_labels or f"there are no labels in {data}"
        if self.unmatched:
            return self.unmatched
        if (reason := self.without_classes()) or categories:
            return reason
        declared = self.images.num_classes
        if declared is not None and declared != self.num_classes:
            return (
                f"the model has {self.num_classes} classes, {self.images.name} has {declared}"
            )
        lowest, highest = int(self.images.targets.min()), int(self.images.targets.max())
        if lowest < 0 or highest >= self.num_classes:
            return (
                f"targets must be between 0 and {self.num_classes - 1}, the classes of the "
                f"model, got {lowest if lowest < 0 else highest}"
            )
        return None


def num_outputs(anatomy: Anatomy) -> int:
    """Number of outputs of each image; 0 where the output is no vector."""
    shape = anatomy.graph.nodes[anatomy.graph.output].shape
    if not shape or len(shape) > 2:
        return 0
    return shape[1] if len(shape) == 2 else 1


@dataclass(frozen=True)
class Measured:
    """A subject and the results of one analysis of it."""

    subject: Subject
    results: Sequence[Result]


def preprocessing_of(model: nn.Module) -> Preprocessing | None:
    """The preprocessing that a module states; see `visprism.models.data_configs.stated_by`."""
    if not {"preprocessing", "pretrained_cfg", "default_cfg"} & set(dir(model)):
        return None
    from visprism.models.data_configs import stated_by  # imports timm: seconds

    return stated_by(model)


def check_images_differ(images: Images, preprocessing: Preprocessing | None) -> None:
    """Refuse several images that are all equal."""
    batches = (
        pixels(inputs_of(batch)) for batch in images.batches(preprocessing, batch_size=2)
    )
    first = next(batches)
    equal = (bool((batch == first[:1]).all()) for batch in chain([first], batches))
    if len(images) > 1 and all(equal):  # reads images up to one that differs
        raise InputError(
            f"images must differ, and all {len(images)} are equal: statistics over images "
            "would mean nothing. Pass other images."
        )


def dissected(
    model: nn.Module,
    images: Images,
    preprocessing: Preprocessing | None,
    run: Run = DEFAULT_RUN,
    name: str = "",
) -> Anatomy:
    """The anatomy of a model on the first two images; errors begin with its name."""
    check_whole(model)
    example = inputs_of(images.batches(preprocessing, batch_size=2, limit=2)[0])
    forget_choice(model)
    try:
        return dissected_on(model, example, run, name)
    except SeveralOutputsError as error:
        fitting = [n for n, width in error.vectors.items() if width == images.classes]
        if len(fitting) != 1:
            raise InputError(f"{name}: {error}" if name else str(error)) from error
        setattr(model, OUTPUT, _Chosen(fitting[0]))
    return dissected_on(model, example, run, name)


class _Chosen(str):
    """An output with the number of classes of the data, which other data may not have."""


def forget_choice(model: nn.Module) -> None:
    """Leave which output holds the logits to the next data, unless the user has named it."""
    if isinstance(getattr(model, OUTPUT, None), _Chosen):
        delattr(model, OUTPUT)


def inputs_of(batch: Any) -> Any:
    """What a model takes of a batch with or without targets."""
    return batch[0] if isinstance(batch, tuple | list) else batch


def dissected_on(
    model: nn.Module, example: Any, run: Run = DEFAULT_RUN, name: str = ""
) -> Anatomy:
    """The anatomy of a model on given images; errors begin with its name."""
    from visprism.passes.batches import on_device

    with errors_of_model(model, example, name), run.compute.borrow(model), torch.no_grad():
        return dissect(model, on_device(example, run.compute))
