"""Images of a study: one ordered set of images for all models.

Whatever the user has (an image set, a data set, a loader, an iterable of batches) becomes
`Images`: the same images in the same order in every pass, and every limit selects a part of
what a larger limit selects.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from torch import Tensor
from torch.utils._pytree import tree_map

from visprism.core.errors import InputError
from visprism.core.preprocessing import NORMALIZATIONS, Preprocessing, unnormalized
from visprism.images.batches import Batches, Change, batches, in_batches
from visprism.images.image_set import NO_CLASS, ImageSet, nested_order
from visprism.images.pixels import crops_of, framing, masks_of, normalized

LABELS = ("labels", "label", "targets", "target")  # keys of a mapping
_MOST_BYTES = 4 * 2**30  # of tensors in memory
_CROP_BYTES = 2**29  # of decoded crops in memory, for all sizes together
_LARGE, _SMALL = 224, 96  # side of images without a stated size; up to 96 they keep their own
_SAMPLED = 64  # images whose size stands for all
_COMPARED = 8  # images whose pixels stand for all


Answers = Callable[[Preprocessing | None, range], Tensor]


@dataclass(frozen=True, eq=False)
class Images:
    """The images of a study, in one order: decoded on demand, or tensors in memory.

    Up to 512 MiB of decoded crops stay in memory, so that all analyses and models share them.
    """

    name: str  # as the user named it
    split: str  # "train", "test", ... or ""
    targets: Int64[np.ndarray, " n"] | None  # class of each image; None without labels
    positions: Int64[np.ndarray, " n"]  # index of each image in the data that the user passed
    num_classes: int | None = None  # where the data declares it
    class_names: tuple[str, ...] = ()
    # The class of each image's texture if it differs from its shape's class.
    textures: Int64[np.ndarray, " n"] | None = None
    skipped: tuple[str, ...] = ()  # images that could not be read, with the reason
    limit: int | None = None  # of images, as the user set it; None: not set
    notes: tuple[str, ...] = ()  # how they were read, where it could be read otherwise
    class_subset: tuple[int, ...] = ()  # classes that the data is defined to have; empty: all
    # Targets that are no classes: of the images in a range, cropped for a preprocessing.
    answers: Answers | None = field(default=None, repr=False)
    table: Tensor | None = field(default=None, repr=False)  # these targets, of all images
    digest: str = ""  # of these images, before targets were matched with a model's outputs
    without_labels: str = ""  # why there are no targets; empty where the data has none
    image_set: ImageSet | None = field(default=None, repr=False)  # decoded on demand, or
    # a tensor (n, c, h, w), or a mapping of tensors for models with several inputs.
    tensors: Any = field(default=None, repr=False)
    normalization: Preprocessing | None = None  # of the tensors, where it is known
    _crops: dict[tuple[Preprocessing, int], Tensor] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def image_shape(self) -> tuple[int, ...]:
        """Shape of one image of tensors, (C, H, W) unless the model takes something else."""
        return tuple(_tensors(self.tensors)[0].shape[1:])

    @property
    def classes(self) -> int | None:
        """Number of classes of the data: as it states, or of its targets; None without them."""
        if self.num_classes is not None or self.targets is None:
            return self.num_classes
        return int(self.targets.max()) + 1

    def preprocessing(self, stated: Preprocessing | None) -> Preprocessing | None:
        """The preprocessing for a model that states `stated`, or none.

        Without a statement, pixels are in [0, 1], and images are cropped to 224x224 pixels or,
        if all have one size of at most 96, to a square of their shorter side. Tensors keep
        the normalization that they have, in their own size; None if it is unknown.
        """
        if self.image_set is not None:
            if stated is not None:
                return stated
            size = common_size(self.image_set)
            return Preprocessing(size, *NORMALIZATIONS["none"], stated=False)
        shape, statistics = self.image_shape, self.normalization or stated
        if statistics is None or not statistics.stated or len(shape) != 3:
            return None
        if len(statistics.mean) == 1:  # of all channels
            mean, std = statistics.mean * shape[0], statistics.std * shape[0]
            statistics = replace(statistics, mean=mean, std=std)
        if len(statistics.mean) != shape[0]:
            return None
        return replace(statistics, size=(shape[1], shape[2]), crop=1.0)

    def batches(
        self,
        preprocessing: Preprocessing | None,
        *,
        batch_size: int,
        limit: int | None = None,
        change: Change | None = None,
    ) -> Batches:
        """Batches of (images, targets), or of images without labels; the same in every pass."""
        if self.answers is not None:
            bare = replace(self, answers=None)
            plain = bare.batches(
                preprocessing, batch_size=batch_size, limit=limit, change=change
            )
            return replace(plain, prepare=partial(self._answered, plain.prepare, preprocessing))
        if self.image_set is not None:
            way = required(preprocessing)
            return batches(
                self.first(limit),
                way,
                batch_size,
                change=change,
                crops=lambda rows: self._crops_of(way, rows),
            )
        way = None if change is None else required(preprocessing)

        def prepare(rows: range) -> Any:
            images = _rows(self.tensors, rows)
            if way is not None and change is not None:
                changed = change(to_pixels(images, way), rows)
                images = normalized(changed, way).to(images.dtype)
            return images if labels is None else (images, labels[rows.start : rows.stop])

        labels = None if self.targets is None else torch.from_numpy(self.targets)
        return in_batches(prepare, min(len(self), limit or len(self)), batch_size)

    def _answered(
        self,
        prepare: Callable[[range], Any],
        preprocessing: Preprocessing | None,
        rows: range,
    ) -> tuple[Any, Tensor]:
        assert self.answers is not None
        batch = prepare(rows)
        inputs = batch[0] if isinstance(batch, tuple) else batch
        return inputs, self.answers(preprocessing, rows)

    def raw_targets(self, preprocessing: Preprocessing | None, rows: range) -> Tensor:
        """Targets of whatever kind, of the images in a range."""
        if self.answers is not None:
            return self.answers(preprocessing, rows)
        assert self.targets is not None
        return torch.from_numpy(self.targets[rows.start : rows.stop])

    def pixels(
        self, preprocessing: Preprocessing | None, start: int, stop: int
    ) -> UInt8[Tensor, "b c h w"]:
        """Pixels of some of the images in eight bits, cropped but not normalized."""
        way, rows = required(preprocessing), range(start, min(stop, len(self)))
        if self.image_set is not None:
            return self._crops_of(way, rows)
        return to_pixels(_rows(self.tensors, rows), way)

    def fingerprint(self) -> str:
        """A digest of names, order, targets and sizes of files; of tensors and targets.

        Where images are no files, it covers the pixels of the first eight.
        """
        if self.digest:
            return self.digest
        if (images := self.image_set) is not None:
            digest = blake2b(f"{self.name}|{self.split}|{len(self)}|".encode(), digest_size=16)
            digest.update(images.targets.tobytes())
            if self.table is not None:
                digest.update(self.table.contiguous().view(torch.uint8).numpy().tobytes())
            if images.size_of is not None:
                digest.update(np.array([*map(images.size_of, range(len(images)))]).tobytes())
            else:
                for picture in images.read(range(min(_COMPARED, len(images)))):
                    digest.update(picture.tobytes())
            return digest.hexdigest()
        digest = blake2b(digest_size=16)
        labels = [] if self.targets is None else [torch.from_numpy(self.targets)]
        labels += [] if self.table is None else [self.table]
        for tensor in (*_tensors(self.tensors), *labels):
            digest.update(str((tuple(tensor.shape), tensor.dtype)).encode())
            digest.update(tensor.contiguous().view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()

    def first(self, limit: int | None) -> ImageSet:
        """The first images, of images that are decoded on demand."""
        images = self.image_set
        assert images is not None
        return images if limit is None else images.subset(np.arange(min(limit, len(images))))

    def _crops_of(self, preprocessing: Preprocessing, rows: range) -> UInt8[Tensor, "b 3 h w"]:
        """The crops of consecutive images; a copy, which may be changed."""
        images = self.first(None)
        way = replace(framing(images, preprocessing), mean=(0.0,), std=(1.0,))
        crops = {row: self._crops[way, row] for row in rows if (way, row) in self._crops}
        missing = [row for row in rows if row not in crops]
        if missing:
            decoded = crops_of(images, way, missing)
            crops |= dict(zip(missing, decoded, strict=True))
            in_memory = list(self._crops.values())  # other threads add to it meanwhile
            left = _CROP_BYTES - sum(crop.nbytes for crop in in_memory)
            kept = missing[: max(0, left // decoded[0].nbytes)]
            self._crops.update({(way, row): crops[row] for row in kept})
        return torch.stack([crops[row] for row in rows])


def ordered(
    image_set: ImageSet, *, seed: int | None = None, limit: int | None = None
) -> Images:
    """The image set in the order of `nested_order`, with at most `limit` images.

    Without a seed it keeps its order.
    """
    everything = np.arange(len(image_set))
    order = everything if seed is None else nested_order(image_set.targets, seed=seed)
    images = image_set.subset(order[:limit])
    assert images.positions is not None
    table = None if images.numbers is None else torch.from_numpy(images.numbers)
    answers = None if images.mask_of is None else partial(masks_of, images)
    return Images(
        name=images.source,
        split=images.split,
        targets=None if NO_CLASS in images.targets else images.targets,
        positions=images.positions,
        num_classes=len(images.class_names) or None,
        class_names=images.class_names,
        textures=images.textures,
        skipped=images.skipped,
        notes=images.notes,
        class_subset=images.class_subset,
        table=table,
        answers=answers if table is None else partial(_rows_of, table),
        image_set=images,
    )


def required(preprocessing: Preprocessing | None) -> Preprocessing:
    """The preprocessing, for operations that change pixels."""
    if preprocessing is None:
        raise InputError(
            "preprocessing must be given where pixels are changed: the mean and standard "
            "deviation that the images were normalized with"
        )
    return preprocessing


def common_size(image_set: ImageSet) -> tuple[int, int]:
    """The side of a square: of small images of one size their shorter side; else 224.

    The whole data set decides, so that it does not depend on which images are selected.
    """
    images, sizes = image_set.whole or image_set, set()
    rows = np.linspace(0, len(images) - 1, min(_SAMPLED, len(images))).round()
    for row in rows.astype(int).tolist():
        if images.fault(row) is not None:
            continue
        picture, _ = images[row]
        sizes.add(picture.size)
        if len(sizes) > 1 or max(picture.size) > _SMALL:
            break
    side = min(sizes.pop()) if len(sizes) == 1 else _LARGE
    return (side, side) if side <= _SMALL else (_LARGE, _LARGE)


def tensor_images(
    data: Iterable,
    *,
    limit: int | None = None,
    preprocessing: Preprocessing | None = None,
    seed: int | None = None,
    class_names: tuple[str, ...] = (),
) -> Images:
    """The batches of a loader or another iterable, read once and kept in memory.

    Reading once makes every pass see the same images, also where a loader shuffles.

    Args:
        data: batches of images (B, C, H, W) or (images,), of mappings of tensors, or of
            (images, targets).
            A mapping of one image tensor and labels, as of Hugging Face, is (images, targets).
            Targets other than one class index per image, such as masks, are left out;
            `Images.without_labels` says so.
        limit: read at most this number of images.
        preprocessing: the normalization that the images have, where it is known.
        seed: of the order of `nested_order`. None: as read.
        class_names: of the classes, where the data states them.
    """
    if isinstance(data, Tensor) or (
        isinstance(data, tuple) and all(isinstance(part, Tensor) for part in data)
    ):
        raise InputError(
            "data must be an iterable of batches, got one batch of tensors. Pass it in a list."
        )
    images: list[Any] = []
    targets: list[Tensor] = []
    others: list[Any] = []  # targets that are no classes
    number = size = 0
    reason = ""
    for batch in data:
        inputs, given = _split_batch(batch)
        tensors = _tensors(inputs)
        labels, fault = _class_indices(given, len(tensors[0]))
        reason = reason or fault
        if images and _shapes_text(inputs) != _shapes_text(images[0]):
            raise InputError(
                f"all batches must hold images of one size, got {_shapes_text(inputs)} after "
                f"{_shapes_text(images[0])}"
            )
        if images and not reason and (labels is None) != (not targets):
            raise InputError("either all batches or none must have targets")
        taken = len(tensors[0]) if limit is None else min(len(tensors[0]), limit - number)
        # A copy, as some loaders fill the same memory with each batch.
        images.append(tree_map(lambda t: t[:taken].to("cpu", copy=True), inputs))  # noqa: B023
        targets += [] if labels is None else [labels[:taken]]
        others += [] if given is None else [_numbers(given, len(tensors[0]), taken)]
        number += taken
        size += sum(tensor.nbytes for tensor in _tensors(images[-1]))
        if size > _MOST_BYTES:
            raise InputError(
                f"data must fit into {_MOST_BYTES // 2**30} GiB of memory as tensors; the "
                f"first {number} images need more. Pass a limit, an ImageSet or a Dataset of "
                "images."
            )
        if number == limit:
            break
    if not number:
        raise InputError("data must give at least one image, got none")
    classes = torch.cat(targets).numpy() if targets and not reason else None
    order = np.arange(number)
    if seed is not None:
        by_class = np.full(number, NO_CLASS) if classes is None else classes
        order = nested_order(by_class, seed=seed)

    def stacked(*batches: Tensor) -> Tensor:
        """The rows of all batches in the order, without a second copy of them."""
        rows = torch.from_numpy(np.argsort(order)).split([len(batch) for batch in batches])
        ordered = batches[0].new_empty((number, *batches[0].shape[1:]))
        for batch, places in zip(batches, rows, strict=True):
            ordered[places] = batch
        return ordered

    table = _table(others, order) if reason else None
    return Images(
        name="the given images",
        split="",
        targets=None if classes is None else classes[order],
        positions=order,
        num_classes=len(class_names) or None,
        class_names=class_names,
        without_labels=reason,
        tensors=tree_map(stacked, *images),
        normalization=preprocessing,
        answers=None if table is None else partial(_rows_of, table),
        table=table,
    )


def _numbers(targets: Any, images: int, taken: int) -> Tensor | None:
    """Numbers of each image; None for anything else, such as boxes."""
    try:
        numbers = torch.as_tensor(targets)
    except (TypeError, ValueError, RuntimeError):
        return None
    return numbers[:taken].cpu() if numbers.ndim and len(numbers) == images else None


def _table(parts: list[Any], order: Int64[np.ndarray, " n"]) -> Tensor | None:
    """Targets of all images in the order; None where a batch has none or another shape."""
    if any(part is None for part in parts) or len({part.shape[1:] for part in parts}) != 1:
        return None
    table = torch.cat(parts)
    return table[torch.from_numpy(order)] if len(table) == len(order) else None


def _rows_of(table: Tensor, _way: Preprocessing | None, rows: range) -> Tensor:
    return table[rows.start : rows.stop]


def to_pixels(images: Tensor, preprocessing: Preprocessing) -> UInt8[Tensor, "b c h w"]:
    """Pixels 0 ... 255 from normalized images; exact where they came from eight bits."""
    pixels = unnormalized(images, preprocessing.mean, preprocessing.std)
    return pixels.mul(255).round().to(torch.uint8)


def _split_batch(batch: Any) -> tuple[Any, Any]:
    """Images and targets; None where there are no targets."""
    if isinstance(batch, tuple | list):
        if len(batch) not in (1, 2):
            raise InputError(
                f"a batch must be images or (images, targets), got {len(batch)} items"
            )
        return batch[0], batch[1] if len(batch) == 2 else None
    if not isinstance(batch, Mapping):
        return batch, None
    labels = [value for key, value in batch.items() if key in LABELS]
    # Other vectors, such as indices, are no input of a model.
    inputs = {k: v for k, v in batch.items() if k not in LABELS and getattr(v, "ndim", 0) > 1}
    if not inputs or len(labels) != 1:
        return dict(batch), None
    return next(iter(inputs.values())) if len(inputs) == 1 else inputs, labels[0]


def _class_indices(targets: Any, images: int) -> tuple[Tensor | None, str]:
    """The targets, or None and the reason why they are no classes."""
    if targets is None:
        return None, ""
    try:
        labels = torch.as_tensor(targets)
        kind = str(labels.dtype).removeprefix("torch.")
        given = f"shape {tuple(labels.shape)} of type {kind}"
    except (TypeError, ValueError, RuntimeError) as error:
        labels, given = torch.empty(0), f"{type(targets).__name__} ({error})"
    if labels.shape == (images,) and not labels.is_floating_point():
        return labels.to("cpu", torch.long, copy=True), ""
    return None, f"targets must be one class index per image ({images}), got {given}"


def _tensors(images: Any) -> list[Tensor]:
    """The tensors of a batch: one, unless the model has several inputs."""
    tensors = list(images.values()) if isinstance(images, Mapping) else [images]
    if not tensors or not all(isinstance(t, Tensor) for t in tensors):
        raise InputError(
            f"images must be tensors, got {type(images).__name__}. Convert them, or pass a "
            "Dataset of PIL images without a DataLoader."
        )
    if tensors[0].layout is not torch.strided:
        raise InputError(
            f"images must be dense tensors, got {tensors[0].layout}. Use to_dense()."
        )
    if isinstance(images, Tensor) and images.ndim == 1:
        raise InputError(
            f"images must have shape (B, C, H, W), got {tuple(images.shape)}. Images and "
            "targets are a pair: [(images, targets)]."
        )
    return tensors


def _rows(images: Any, rows: range) -> Any:
    return tree_map(lambda tensor: tensor[rows.start : rows.stop], images)


def _shapes_text(images: Any) -> str:
    return ", ".join("x".join(map(str, t.shape[1:])) for t in _tensors(images))
