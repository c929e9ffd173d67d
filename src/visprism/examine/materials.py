"""Materials: models taken apart, and the images that they are shown."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

import torch

from visprism.anatomy import Anatomy, dissect, forward
from visprism.core.errors import InputError
from visprism.core.preprocessing import Preprocessing
from visprism.core.provenance import Provenance
from visprism.core.rng import stream
from visprism.data import Batches, ImageSet, batches, framing, load_data
from visprism.data.fixed_augmentation import Augmented, augmented
from visprism.data.image_set import NO_CLASS, balanced
from visprism.examine.inquiry import Inquiry, Progress
from visprism.models import LoadedModel, load_model
from visprism.report import check_names


@dataclass(frozen=True)
class Materials:
    """One model, taken apart, and its images."""

    model: LoadedModel
    anatomy: Anatomy
    image_set: ImageSet
    preprocessing: Preprocessing

    def batches(self, batch_size: int) -> Batches:
        """The images as the model wants them."""
        return batches(self.image_set, self.preprocessing, batch_size=batch_size)

    def augmented(self, inquiry: Inquiry) -> Augmented:
        """The images as the paper's networks see them in training, mixed, with soft targets."""
        return augmented(
            self.image_set,
            self.preprocessing,
            inquiry.batch_size,
            self.num_classes,
            seed=inquiry.seed,
        )

    def some(self, limit: int, seed: int) -> "Materials":
        """The same with at most so many of the images, as many of each class."""
        if limit >= len(self.image_set):
            return self
        chosen = balanced(self.image_set.targets, limit, seed=seed)
        return replace(self, image_set=self.image_set.subset(chosen))

    @property
    def num_classes(self) -> int:
        """Number of classes that the model tells apart."""
        shape = self.anatomy.graph.nodes[self.anatomy.graph.output].shape
        return shape[-1] if shape else 0

    def check_classes(self) -> None:
        """The loss of these images is defined: they have labels, of the model's classes.

        Raises:
            InputError: if not.
        """
        images = self.image_set
        if not len(images) or int(images.targets.min()) == NO_CLASS:
            raise InputError(
                f"{images.name} has no labels, and the loss needs them; name data with classes,"
                " such as a folder with one folder for each class"
            )
        if images.num_classes != self.num_classes:
            raise InputError(
                f"{self.model.label} has {self.num_classes} classes and {images.name} has "
                f"{images.num_classes}; the loss needs a model of these classes, as in "
                f"'timm:resnet18?num_classes={images.num_classes}@best.safetensors'"
            )

    def provenance(self, inquiry: Inquiry) -> Provenance:
        """What is known of a measurement before it is made."""
        return Provenance(
            model=self.model.name,
            data=self.image_set.name,
            preprocessing=str(self.preprocessing),
            seed=inquiry.seed,
            command=inquiry.command,
            created=datetime.now(UTC).date().isoformat(),
        )


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


def prepare(
    models: Sequence[LoadedModel], inquiry: Inquiry, *, progress: Progress
) -> list[Materials]:
    """The same images for every model; what can be wrong with any is found here.

    The images come in an order drawn by the seed: data is often sorted by class, and analyses
    that compare the images of a batch need several classes in it.

    Raises:
        InputError: if the data cannot be read, or a model fails on images of this size.
    """
    check_names([model.label for model in models])
    ways = [_sized(model.preprocessing, inquiry.size) for model in models]
    image_set = load_data(
        inquiry.data,
        split=inquiry.split,
        limit=inquiry.limit,
        skip_bad=inquiry.skip_bad,
        side=max(_side(preprocessing) for preprocessing in ways),
        seed=inquiry.seed,
        progress=partial(progress, label="reading images"),
    )
    generator = stream(inquiry.seed, "order of images")
    order = torch.randperm(len(image_set), generator=generator).numpy()
    image_set = image_set.subset(order)
    anatomies = [take_apart(m, size=inquiry.size, seed=inquiry.seed) for m in models]
    return [
        Materials(model, anatomy, image_set, framing(image_set, preprocessing))
        for model, anatomy, preprocessing in zip(models, anatomies, ways, strict=True)
    ]


def _side(preprocessing: Preprocessing) -> int:
    """Side of images that lose nothing when they are resized for the crop."""
    return int(max(preprocessing.size) / preprocessing.crop)


def _sized(preprocessing: Preprocessing, size: tuple[int, int] | None) -> Preprocessing:
    return replace(preprocessing, size=size, crop=1.0) if size else preprocessing
